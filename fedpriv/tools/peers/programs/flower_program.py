"""A round of federated averaging by Flower's simulation, with its default engine (Ray).

Each client gets one core and one thread of torch, so that as many clients train at once as there are cores:
faster here than Flower's default of two cores for a client. Nothing is evaluated, clipped or noised.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from serve import Step, serve


def main() -> None:
    """Run the simulation in this thread, and serve the requests in another."""
    begin, done = threading.Semaphore(0), threading.Semaphore(0)
    failure: list[BaseException] = []
    work: dict[str, float] = {}
    opened = threading.Event()

    def open_row(**keys: float) -> Step:
        work.update(keys)
        opened.set()

        def step() -> None:
            begin.release()
            done.acquire()
            if failure:
                raise failure[0]

        return step

    def answer() -> None:
        try:
            serve(open_row, ("flwr", "ray", "torch"))
        finally:
            with suppress(Exception):
                import ray

                ray.shutdown()
            os._exit(0)

    threading.Thread(target=answer, daemon=True).start()
    opened.wait()
    try:
        simulate(work, begin, done)
    except BaseException as error:
        failure.append(error)
        done.release()
        threading.Event().wait(5)
        raise


def simulate(work: dict[str, float], begin: threading.Semaphore, done: threading.Semaphore) -> None:
    """Run rounds, each begun by ``begin`` and told to ``done``."""
    import torch
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation
    from networks import lots, network
    from torch.nn import functional

    model, clients = str(work["model"]), int(work["clients"])
    records, batch, epochs = int(work["records"]), int(work["batch"]), int(work["epochs"])
    rate = float(work["rate"])
    client_app, server_app = ClientApp(), ServerApp()

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        module = network(model)
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(module.parameters(), lr=rate)
        inputs, targets = lots(1, records)[
            0
        ]  # made again in each round: a fraction of a millisecond
        for _ in range(epochs):
            for x, y in zip(inputs.split(batch), targets.split(batch), strict=True):
                optimizer.zero_grad()
                functional.cross_entropy(module(x), y).backward()
                optimizer.step()
        content = {
            "arrays": ArrayRecord(module.state_dict()),
            "metrics": MetricRecord({"num-examples": records}),
        }
        return Message(content=RecordDict(content), reply_to=message)

    class OneRoundAtATime(FedAvg):
        """Averages when it is asked to."""

        def configure_train(self, *arguments, **keys):  # type: ignore[no-untyped-def]
            begin.acquire()
            return super().configure_train(*arguments, **keys)

        def aggregate_train(self, server_round, replies):  # type: ignore[no-untyped-def]
            replies = list(replies)
            failed = [m.error.reason for m in replies if m.has_error()]
            if failed or len(replies) != clients:
                raise RuntimeError(f"{len(failed)} of {clients} clients failed: {failed[:1]}")
            result = super().aggregate_train(server_round, replies)
            done.release()
            return result

    @server_app.main()
    def serve_clients(grid: Grid, context: Context) -> None:
        strategy = OneRoundAtATime(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=clients,
            min_available_nodes=clients,
        )
        strategy.start(grid, ArrayRecord(network(model).state_dict()), num_rounds=10**9)

    run_simulation(
        server_app, client_app, clients,
        backend_config={
            "client_resources": {"num_cpus": 1},
            "init_args": {"num_cpus": int(work["cores"]), "include_dashboard": False},
        },
    )  # fmt: skip


if __name__ == "__main__":
    main()
