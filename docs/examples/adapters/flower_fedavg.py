"""Flower's fixed clipping: its strategy wrapper on the server, its mod on each client.

It runs where flwr is installed (1.42 was tried):

fedpriv verify --adapter docs/examples/adapters/flower_fedavg.py:make --python flower-env/bin/python
"""

import logging

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.mod import fixedclipping_mod
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, FedAvg
from flwr.supercore.task_identity import TaskIdentity

CLIENTS, CLIP_NORM, NOISE_MULTIPLIER = 20, 1.0, 1.1
logging.getLogger("flwr").setLevel(logging.ERROR)
# Messages are made outside of a running Flower app, which would have set these.
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1


class Flower:
    """A server and its clients. The number of examples of each client comes from fedpriv, if ``weighted``."""

    def __init__(self, weighted):
        self.claim = {
            "unit": "client",
            "neighbours": "zero_out",  # all take part, and one sends zeros in the other world
            "sampling": "none",
            "clip_norm": CLIP_NORM,
            "noise_multiplier": NOISE_MULTIPLIER,
            "denominator": CLIENTS,
            "rounds": 10,
            "observer": "sees the noisy mean of each round",
            "clients": CLIENTS,
            "finite": True,
        }
        self.holds_still = ["seed", "examples"] if weighted else ["seed"]
        self.strategy = DifferentialPrivacyClientSideFixedClipping(
            FedAvg(), NOISE_MULTIPLIER, CLIP_NORM, num_sampled_clients=CLIENTS
        )

    def round(self, state, data, seed, examples=None):
        """Return the change of the global model in one round."""
        number = (state or 0) + 1
        np.random.seed([seed, number])  # Flower draws its noise from numpy's global generator
        model = ArrayRecord({"weights": Array(np.zeros(len(data[0])))})
        replies = []
        for client, update in enumerate(data):
            # flwr 1.42 divides by the norm of an update. Without this line the round stops at an update of
            # zeros, which tells of it: verify fails with "the round: a client zero".
            update = update if update.any() else update + 1e-12
            content = {"arrays": model, "config": ConfigRecord({"clipping_norm": CLIP_NORM})}
            request = Message(RecordDict(content), dst_node_id=client + 1, message_type="train")
            count = examples[client] if examples else 1

            def train(message, context, update=update, count=count):
                answer = {
                    "arrays": ArrayRecord({"weights": Array(update)}),
                    "metrics": MetricRecord({"num-examples": count}),
                }
                return Message(RecordDict(answer), reply_to=message)

            context = Context(
                run_id=1, node_id=client + 1, node_config={}, state=RecordDict(), run_config={}
            )
            replies.append(fixedclipping_mod(request, context, train))
        arrays, _ = self.strategy.aggregate_train(number, replies)
        return arrays.to_numpy_ndarrays()[0], number


def make():
    """Return the adapter with equal numbers of examples."""
    return Flower(weighted=False)


def make_weighted():
    """Return the adapter with unequal numbers of examples, by which FedAvg weights."""
    return Flower(weighted=True)
