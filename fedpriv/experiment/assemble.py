"""Assembles a run from its parts: device, data, model, budget, folder, streams, loop.

The order is that in which a step can fail: a run that is refused has made no folder.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig

from fedpriv.common import config as configuration
from fedpriv.common.attributes import is_own
from fedpriv.common.errors import ArgumentError, ConfigError, FedprivError
from fedpriv.common.files import write_json, write_text
from fedpriv.common.secret_streams import STREAM_VERSION, SecretStreams
from fedpriv.data.names import DIRECTION, MISLABELLED
from fedpriv.experiment import checkpoint
from fedpriv.experiment.checkpoint import Origin
from fedpriv.experiment.contracts import refuse_near_misses
from fedpriv.experiment.instantiate import within_group
from fedpriv.experiment.machine import (
    choose_threads,
    chunk_size,
    numeric_environment,
    processor,
    resolve_device,
    threads_before,
    threads_restored,
)
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import make_plan
from fedpriv.experiment.secrets import create_key, run_digest, streams_of_run
from fedpriv.experiment.settings import EPSILON_AUDIT
from fedpriv.experiment.starting_point import EARLIER_RUN
from fedpriv.experiment.warm_start import begin_warm
from fedpriv.privacy.budget import Adaptation, Budget, Target
from fedpriv.privacy.core.events import describe_event
from fedpriv.store.folder import RunFolder, environment, new_folder, not_resumable
from fedpriv.store.stored_run import StoredRun

if TYPE_CHECKING:
    import torch

    from fedpriv.algorithms.run_context import RunContext
    from fedpriv.attacks.attackers import Attackers
    from fedpriv.attacks.base import Attack
    from fedpriv.attacks.canaries import PlantedCanaries
    from fedpriv.data.federated import ClientSizes, FederatedData
    from fedpriv.experiment.running import Run


def assemble(
    parts: Parts,
    config: DictConfig,
    folder: RunFolder | None,
    overrides: Sequence[str] | None,
) -> Run:
    """Build a run that is ready to go, or to go on from a checkpoint.

    A new run leaves a folder with its configuration and environment, and of a published run with its key. The
    calling process gets the run's number of threads and other settings of the memory allocator.

    Args:
        parts: The objects of all groups.
        config: The configuration that the parts were made of.
        folder: The folder of a run that goes on; None for a new run, which gets a folder.
        overrides: The overrides of the command, which the folder notes; None if there was no command.

    Raises:
        ConfigError: The parts do not go together with the data, or the run cannot go on from its folder.
        DataError: The data cannot be read.
    """
    import torch

    from fedpriv.engine import tune_allocator
    from fedpriv.experiment.loop import Loop
    from fedpriv.experiment.running import Run
    from fedpriv.experiment.second_draw import second_draw

    began = time.perf_counter(), time.process_time()
    settings, identity = parts.settings, configuration.identity(config)

    # 1. Device, data and model; then the budget, which depends on how many records the clients have.
    tune_allocator(reading=True)
    device = resolve_device(settings.runtime.device)
    # The checkpoint is read before the data: a folder of another run is refused within a second.
    state = None if folder is None else saved_state(folder, identity, device)
    context = context_with_canaries(parts, device, threads_before(state))
    threads = torch.get_num_threads()
    budget = make_budget(parts, context.data, attackers_of(context)) if parts.private else None
    # Before the warm start: its rounding differs between machines, and what it is made of counts by itself.
    digest = run_digest(config, settings.rounds, context)
    if state is None:
        begin_warm(settings.warm_start, context, quiet=settings.runtime.progress == "none")

    # 2. The folder. It is made as late as this, so that a run that is refused leaves nothing behind.
    is_new = folder is None
    if folder is None:
        folder = new_run_folder(parts)
        # The configuration is written last, as its presence says that a folder holds a run. A process
        # that is killed between these lines leaves a folder which the next attempt may use.
        facts = environment(overrides, str(device), threads, STREAM_VERSION)
        write_json(folder.environment, {**facts, "processor": processor()})
        if settings.publish:
            create_key(folder)
        write_text(folder.config, configuration.dump(config))
    else:
        folder.remove_leftovers()

    # 3. The secret streams, which depend on all that the run is made of (``digest``).
    context.streams, name = streams_of_run(settings, digest, folder)

    # 4. The checkpoint must come from this very run.
    notes = []
    numerics = numeric_environment(device, threads, context.engine.name, context.chunk)
    origin = Origin(identity, name, numerics, digest)
    if state is None and not is_new:
        notes.append(f"{folder.path} has no checkpoint and no round: it begins with round 1")
    if state is not None:
        checkpoint.refuse_other_origin(folder, state, origin)

    # 5. The loop, and its state.
    drawn = second_draw(parts, context)  # before the algorithm sees the data
    loop = Loop(parts, context, budget)
    loop.second_draw = drawn
    loop.began = began  # reading the data and probing the model count
    if context.canaries is not None:
        from fedpriv.experiment.canaries import watch_canaries

        watch_canaries(loop)
    if state is not None:
        loop.load_state_dict(state)
        # The totals are counted anew from the ledger, so that an edited checkpoint makes nobody pay less.
        if budget is not None and (differing := budget.recount()):
            notes.append(
                f"warning: the running totals of the checkpoint are not those of its ledger ({differing}): "
                "the larger counts"
            )
    return Run(loop, folder, origin, state, notes)


# ---- data, model and engine


def context_with_canaries(
    parts: Parts, device: torch.device, threads: int | None = None
) -> RunContext:
    """Return the context of a run, with the canaries that the key ``audit`` asks for."""
    settings = parts.settings
    return make_context(
        parts,
        device,
        settings.canaries,
        settings.seed,
        fewer=EPSILON_AUDIT in settings.audit,
        canary=settings.canary,
        threads=threads,
    )


def attackers_of(context: RunContext) -> np.ndarray:
    """Return the numbers of the simulated attackers among the clients."""
    return np.zeros(0, dtype=int) if context.attack is None else context.attack.attackers


def make_context(
    parts: Parts,
    device: torch.device,
    canaries: int = 0,
    seed: int = 0,
    fewer: bool = False,
    canary: str = DIRECTION,
    threads: int | None = None,
) -> RunContext:
    """Build data, model and engine, with attackers among the clients if there are any.

    The streams of the result are preliminary: they are those of no run. The calling process gets the run's
    number of threads. The model is probed with one.

    Args:
        parts: The objects of all groups.
        device: Device of data and model.
        canaries: Number of canaries that are planted.
        seed: Seed of the canaries' coins and contents.
        fewer: Plant fewer canaries where there is no room for all of them, instead of refusing.
        canary: Kind of the canaries, see :mod:`fedpriv.data.names`.
        threads: Number of threads, unless the configuration has one; None: the work of a step decides.

    Raises:
        ConfigError: The parts do not go together with the data, or with one another.
        DataError: The data cannot be read.
    """
    from fedpriv.aggregation.run_rule import RunRule
    from fedpriv.algorithms.run_context import RunContext
    from fedpriv.data.federated import federate, smallest_client
    from fedpriv.data.shadow import of_shadow
    from fedpriv.engine import FlatModel, make_engine, tune_allocator
    from fedpriv.engine.probe import multiply_adds
    from fedpriv.models.fit import build_for

    settings, algorithm = parts.settings, parts.algorithm
    data = federate(
        parts.dataset,
        parts.partition,
        validation=parts.reads_validation,
        seed=parts.split_seed,
        unit=parts.algorithm.unit,
    ).to(device)
    if settings.shadow is not None:
        data = of_shadow(data, settings.shadow)
    original = None if settings.warm_start is None else data
    attackers = None
    if parts.attack is not None:
        attackers = _start_attackers(parts, parts.attack, data)
        data = attackers.data
    # Facts of the data are checked before a model is built, which may take long.
    within_group("algorithm", lambda: algorithm.check_clients(data.client_count))
    refuse_smaller_clients(parts, smallest_client(data))
    module = build_for(parts.model, parts.dataset, settings.seed)
    model = FlatModel(module.to(device))
    # Attackers, then canaries, replace the data. All that follows sees the records of both.
    planted = None
    if canaries:
        planted = _plant_canaries(parts, data, canaries, model.size, seed, fewer, canary)
        data = planted.canaries.data
    context = RunContext(
        data=data,
        model=model,
        engine=make_engine(model, engine=settings.runtime.engine),
        clipper=parts.clipper,
        seed=settings.seed,
        streams=SecretStreams.simulated(settings.seed, settings.noise_seed),
        mechanism=parts.mechanism,
        private=parts.private,
        original=original,
    )
    if (rule := parts.aggregation) is not None:
        most = algorithm.clients_per_round or data.client_count
        within_group("aggregation", lambda: rule.check_cohort(most))
        context.rule = RunRule(rule, model)
    # What a client releases may depend on how many records it has, and only here are they known.
    parts.mechanism.join(data.records_per_client)
    tune_allocator()  # the data are read
    with threads_restored(within=1):  # several would use more processor time
        per_record = multiply_adds(module, context.random_records(2)[0])
        _probe_model(parts, context, per_record)
    wanted, workers = settings.runtime.threads or threads, settings.runtime.workers
    choose_threads(wanted, per_record * _records_of_step(parts, context), workers)
    if attackers is not None:
        attackers.join(context)
    if planted is not None:
        planted.join(context)
    # Last, as the work of a round depends on the model and on the records of attackers and canaries.
    context.chunk = settings.chunk
    if settings.chunk is None:
        cohort = algorithm.expected_cohort(data.client_count)
        assert cohort is not None
        context.chunk = chunk_size(cohort, model.size * _records_of_step(parts, context))
    return context


def _start_attackers(parts: Parts, attack: Attack, data: FederatedData) -> Attackers:
    """Return the attackers of a run.

    Raises:
        ConfigError: ``attack.start`` returns no attackers, or a method of theirs is misspelt.
    """
    from fedpriv.attacks.attackers import Attackers

    attackers = attack.start(data)
    if not isinstance(attackers, Attackers):
        raise ConfigError(
            f"attack: {type(attack).__name__}.start must return an object of a class that extends "
            "fedpriv.attacks.malicious.MaliciousClients (a backdoor) or "
            f"{Attackers.__module__}.Attackers, got {type(attackers).__name__}"
        )
    refuse_near_misses("attackers", attackers)
    return attackers


def _probe_model(parts: Parts, context: RunContext, per_record: float) -> None:
    """Refuse a model that draws random numbers of its own, or in a private run mixes records.

    Raises:
        ConfigError: It does.
    """
    from fedpriv.engine.probe import (
        LARGEST_LOT,
        LARGEST_WORK,
        LOTS,
        refuse_own_randomness,
        refuse_record_mixing,
    )

    algorithm, module = parts.algorithm, context.model.module
    if is_own(parts.model):
        _refuse_odd_answers(parts.model, context)
    refuse_own_randomness(module, context.random_records(LOTS[-1])[0])
    if not parts.private:
        return
    largest = int(context.data.records_per_client.max())
    lot: float = algorithm.batch_size or largest
    if algorithm.unit == "record":
        lot = algorithm.sampling_of(largest).expected_size(largest)
    most = min(LARGEST_LOT, int(LARGEST_WORK / per_record))
    sizes = sorted({*LOTS, max(2, min(round(lot), most))})
    refuse_record_mixing(
        module, context.random_records, sizes, per_record=algorithm.unit == "record"
    )


def _refuse_odd_answers(factory: object, context: RunContext) -> None:
    """Raise ConfigError if a model of the user's own fails on random records, or answers in another form."""
    import torch

    from fedpriv.engine import FlatModel
    from fedpriv.models.own_module import failure_of

    name = f"{type(factory).__module__}.{type(factory).__name__}"
    module = copy.deepcopy(context.model.module).eval()
    model, (inputs, targets) = FlatModel(module), context.random_records(3)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            outputs = model(inputs)
            losses, correct = model.loss(outputs, targets), model.correct(outputs, targets)
    except (FedprivError, MemoryError):
        raise
    except Exception as error:
        raise failure_of(name, "fails on three random records", error) from None
    for method, given, form, count in (
        ("record_loss", (losses,), "one loss for each record [n]", 1),
        ("record_correct", correct, "(right answers [n], answers that count [n])", 2),
    ):
        if [tuple(getattr(answer, "shape", ())) for answer in given] != [(3,)] * count:
            code = getattr(getattr(module, method, None), "__code__", None)
            place = f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""
            raise ConfigError(f"model: {method} of {name} must return {form}{place}")


def _plant_canaries(
    parts: Parts, data: FederatedData, count: int, size: int, seed: int, fewer: bool, canary: str
) -> PlantedCanaries:
    """Return ``count`` canaries among the records of ``data``, for a model of ``size`` parameters.

    Raises:
        ConfigError: There is no room for so many, and not ``fewer``.
    """
    from fedpriv.attacks.canaries import PlantedDirections, make_canaries, most_canaries
    from fedpriv.attacks.mislabelled import PlantedMislabelled, make_mislabelled, most_mislabelled

    unit, mislabelled = parts.algorithm.unit, canary == MISLABELLED
    if fewer:
        most = most_mislabelled(data) if mislabelled else most_canaries(data, unit, size)
        count = min(count, most)
    arguments: dict[str, Any] = {
        "count": count,
        "unit": unit,
        "neighbours": parts.costs().sampling.neighbours,
        "seed": seed,
    }
    try:
        if mislabelled:
            return PlantedMislabelled(make_mislabelled(data, **arguments))
        return PlantedDirections(make_canaries(data, size=size, **arguments))
    except ArgumentError as error:
        key = "audit=epsilon:M" if parts.settings.canaries else "--canaries"
        raise ConfigError(key, error.value, error.allowed) from None


# ---- budget and folder


def refuse_smaller_clients(parts: Parts, smallest: int) -> None:
    """Raise ConfigError where the algorithm's claim assumes more records than the smallest client has."""
    assumed = parts.algorithm.assumed.get("records", 0)
    if assumed > smallest:
        raise ConfigError(
            "algorithm.records", assumed, f"<= {smallest}, the records of the smallest client"
        )


def _records_of_step(parts: Parts, context: RunContext) -> float:
    """Return the records of one local step of the cohort; augmented copies of a record count.

    The work of a step follows from public numbers alone, never from a timing: with a timing, sums would be
    rounded otherwise on a busy machine.
    """
    algorithm, data = parts.algorithm, context.data
    share = min(1.0, (algorithm.clients_per_round or data.client_count) / data.client_count)
    records = algorithm.records_per_step(share * float(data.records_per_client.sum()))
    copies = 1 if algorithm.augmentation is None else algorithm.augmentation.multiplicity
    return records * copies


def make_budget(parts: Parts, data: FederatedData | ClientSizes, attackers: np.ndarray) -> Budget:
    """Return the ledger and the totals of a run, before its first round.

    Under Poisson sampling all clients pay the same. With lots of a fixed size clients with more records pay
    less. So only if the largest client cannot afford a round the run is refused; a smaller one that cannot
    is left out, as in any later round.

    Args:
        parts: The objects of all groups.
        data: The data, or only how many records each client has.
        attackers: Numbers of the simulated attackers, for whom the guarantee is not stated.

    Raises:
        ConfigError: No client can afford a single round.
    """
    settings = parts.settings
    sizes = np.unique(data.records_per_client)
    for records in sizes[sizes > 0][::-1]:  # the cheapest client first
        plan = make_plan(parts, int(records))
        if plan.rounds_allowed != 0:
            break
    plan.refuse_if_impossible(settings.epsilon)
    assert plan.first is not None
    adaptation = None
    if parts.adaptive:
        bound = parts.mechanism.bound(parts.costs().sampling)
        adaptation = Adaptation(bound, parts.noise_schedule.lowest_known)
    budget = Budget(
        clients=data.client_count,
        target=Target(settings.epsilon, settings.delta, settings.budget_view, parts.accountant),
        claim=parts.claim,
        first=plan.first,
        adaptation=adaptation,
        trust=parts.algorithm.trust,
        attackers=attackers,
        makers=parts.makers_of_events,
    )
    # When a run goes on, the ledger of its checkpoint replaces this one.
    if parts.unprotected:
        budget.expose(parts.unprotected)
    for event, count in parts.earlier.items():
        everyone = np.arange(data.client_count)
        budget.charge_earlier(describe_event(event), everyone, count, EARLIER_RUN)
    return budget


def saved_state(
    folder: RunFolder, identity: dict[str, object], device: torch.device
) -> dict[str, Any] | None:
    """Return the checkpoint to go on from; None for a run that was killed before it wrote its first one.

    Args:
        folder: The run folder.
        identity: The identity of the run that is to go on there.
        device: Device of the tensors that are returned.

    Raises:
        ConfigError: The folder holds another run, or nothing that can be resumed.
    """
    if not (folder.config.exists() or folder.checkpoint.exists()):
        raise not_resumable(str(folder.path))
    checkpoint.refuse_other_identity(folder, StoredRun(folder).identity, identity)
    if not folder.checkpoint.exists():
        checkpoint.refuse_lost(folder)
        return None
    try:
        state: Any = checkpoint.read(folder, device)
    except ConfigError as error:
        raise ConfigError(f"resume: {error}; start anew") from None
    checkpoint.refuse_other_identity(folder, state.get("identity", {}), identity)
    return state


def new_run_folder(parts: Parts) -> RunFolder:
    """Make and return the folder of a new run: ``runtime.run_dir``, or a new one in ``runtime.output_dir``.

    The latter is named by algorithm, data set and time; by the seed only with diagnostics, as without them
    the seed is secret.

    Raises:
        ConfigError: The folder cannot be made.
    """
    settings = parts.settings
    if settings.runtime.run_dir is not None:
        return RunFolder(settings.runtime.run_dir).create()
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    name = f"{parts.algorithm.name}_{parts.dataset.name}"
    if settings.runtime.diagnostics:
        name += f"_seed{settings.seed}"
    return new_folder(settings.runtime.output_dir, f"{name}_{stamp}")
