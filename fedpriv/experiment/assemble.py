"""Builds what a run needs, in the order in which it can fail: device, data, model, budget, folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common import config as configuration
from fedpriv.common.attributes import is_own
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.secret_streams import STREAM_VERSION, History, SecretStreams
from fedpriv.data.names import DIRECTION, MISLABELLED
from fedpriv.experiment import checkpoint
from fedpriv.experiment.checkpoint import Origin
from fedpriv.experiment.contracts import refuse_without_sampling
from fedpriv.experiment.instantiate import within_group
from fedpriv.experiment.machine import (
    choose_threads,
    chunk_size,
    numeric_environment,
    processor,
    resolve_device,
)
from fedpriv.experiment.own_code import own_targets
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import make_plan
from fedpriv.experiment.secrets import create_key, run_digest, streams_of_run
from fedpriv.experiment.settings import EPSILON_AUDIT
from fedpriv.experiment.signatures import refuse_wrong_signatures
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.target import Adaptation, Target
from fedpriv.store.folder import RunFolder, environment, new_folder
from fedpriv.store.stored_run import StoredRun

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fedpriv.aggregation.checked import CheckedRule
    from fedpriv.algorithms.run_context import RunContext
    from fedpriv.attacks.canaries import PlantedCanaries
    from fedpriv.attacks.malicious import MaliciousClients
    from fedpriv.data.federated import ClientSizes, FederatedData
    from fedpriv.experiment.running import Run


def assemble(
    parts: Parts,
    config: DictConfig,
    folder: RunFolder | None,
    overrides: Sequence[str] | None,
) -> Run:
    """The run, ready to go, or to go on from a checkpoint in ``folder``."""
    from fedpriv.engine import tune_allocator
    from fedpriv.experiment.loop import Loop
    from fedpriv.experiment.own_state import forgotten_words
    from fedpriv.experiment.running import Run
    from fedpriv.experiment.second_draw import second_draw
    from fedpriv.experiment.uncalled import refuse_uncalled_by_trainer

    began = time.process_time()
    settings, identity = parts.settings, configuration.identity(config)
    tune_allocator(reading=True)
    device = resolve_device(settings.runtime.device)
    state, passed_over = (None, None) if folder is None else saved_state(folder, identity, device)
    context = make_context(
        parts,
        device,
        settings.canaries,
        settings.seed,
        fewer=EPSILON_AUDIT in settings.audit,
        canary=settings.canary,
    )
    tune_allocator()
    threads = choose_threads(settings.runtime.threads, work_per_round(parts, context))
    attackers = np.zeros(0, dtype=int) if context.attack is None else context.attack.attackers
    budget = make_budget(parts, context.data, attackers) if parts.private else None
    begun = folder is not None
    if folder is None:
        folder = new_run_folder(parts)
        facts = environment(overrides, str(device), threads, STREAM_VERSION)
        folder.write_json(folder.environment, {**facts, "processor": processor()})
        if settings.publish:
            create_key(folder)
        folder.write_text(folder.config, configuration.dump(config))
    else:
        folder.remove_leftovers()
    digest = run_digest(config, settings.rounds, context)
    context.streams, name = streams_of_run(settings, digest, folder)
    if settings.paired is None and own_targets(identity):
        context.streams = replace(context.streams, history=History())
    notes = (
        [] if passed_over is None else [f"warning: {passed_over}; the checkpoint before it serves"]
    )
    origin = Origin(
        identity, name, numeric_environment(device, threads, context.engine.name, context.chunk)
    )
    if begun and state is None:
        notes.append(f"{folder.path} has no checkpoint and no round: it begins with round 1")
    if state is not None:
        checkpoint.refuse_other_origin(folder, state, origin, settings.publish)
        notes += checkpoint.compare_files(folder, state)
        _mend_configuration(folder, config, identity)
    drawn = second_draw(parts, context)  # before the algorithm sees the data
    loop = Loop(parts, context, budget)
    loop.second_draw = drawn
    refuse_uncalled_by_trainer(loop.trainer)
    loop.cpu_began = began  # reading the data counts
    if context.canaries is not None:
        from fedpriv.experiment.canaries import watch_canaries

        watch_canaries(loop)
    if state is not None:
        if settings.publish and (words := forgotten_words(state.get("own", {}))):
            raise ConfigError(
                f"resume: {words}. Rounds run again with the same noise and another state would give the "
                "noise away; start anew"
            )
        loop.load_state_dict(state)
        if budget is not None and (differing := budget.recount()):
            notes.append(
                f"warning: the running totals of the checkpoint are not those of its ledger ({differing}): "
                "the larger counts"
            )
    return Run(loop, folder, origin, state, notes)


def _mend_configuration(folder: RunFolder, config: DictConfig, identity: dict[str, object]) -> None:
    """Write config.yaml again where it is not that of the run that the checkpoint is of."""
    with suppress(ConfigError, OmegaConfBaseException):
        there = StoredRun(folder).identity
        if configuration.fingerprint(there) == configuration.fingerprint(identity):
            return
    folder.write_text(folder.config, configuration.dump(config))


def make_context(
    parts: Parts,
    device: torch.device,
    canaries: int = 0,
    seed: int = 0,
    fewer: bool = False,
    canary: str = DIRECTION,
) -> RunContext:
    """Data, model and engine, with the attackers among the clients, if there are any; the streams are
    nobody's yet. ``canaries``: so many of the kind ``canary`` are planted, or as many as there is room for
    (``fewer``); ``seed``: of their coins, and of what they are."""
    from fedpriv.algorithms.run_context import RunContext
    from fedpriv.data.federated import federate
    from fedpriv.data.shadow import of_shadow
    from fedpriv.engine import FlatModel, make_engine
    from fedpriv.models.checks import refuse_own_randomness, refuse_record_mixing
    from fedpriv.models.fit import build_for

    settings, algorithm = parts.settings, parts.algorithm
    data = federate(
        parts.dataset,
        parts.partition,
        validation=parts.noise_schedule.reads_validation,
        seed=parts.split_seed,
        device=str(device),
    )
    if settings.shadow is not None:
        data = of_shadow(data, settings.shadow)
    attack = None
    if parts.attack is not None:
        attack = _attackers(parts, data)
        data = attack.data
    within_group("algorithm", lambda: algorithm.check_clients(data.client_count))
    refuse_smaller_clients(parts, int(data.records_per_client.min()))
    module = build_for(parts.model, parts.dataset, settings.seed)
    model = FlatModel(module.to(device), isolated=settings.isolate_records)
    planted = None
    if canaries:
        count = min(canaries, _room(parts, data, model.size, canary)) if fewer else canaries
        planted = _planted(parts, data, count, model.size, seed, canary)
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
    )
    if is_own(algorithm):
        refuse_without_sampling(algorithm, map(int, np.unique(data.records_per_client)))
    context.rule = _start_rule(parts, context)
    parts.mechanism.join(data.records_per_client)
    inputs, _ = context.random_records(_probes(module))
    refuse_own_randomness(module, inputs)
    if parts.private:
        refuse_record_mixing(module, inputs, per_record=algorithm.unit == "record")
        if is_own(parts.model):
            context.probed_lots = _probe_own_model(parts, context)
    if attack is not None:
        attack.join(context)
    if planted is not None:
        planted.join(context)
    context.chunk = settings.chunk
    if settings.chunk is None:
        cohort = algorithm.expected_cohort(data.client_count)
        assert cohort is not None
        context.chunk = chunk_size(cohort, work_per_round(parts, context))
    return context


def _start_rule(parts: Parts, context: RunContext) -> CheckedRule | None:
    """Start the rule of a run, or return None. Raises ConfigError for one that cannot be used."""
    from fedpriv.aggregation.checked import CheckedRule, refuse_unrepeatable
    from fedpriv.experiment.uncalled import refuse_uncalled

    if parts.aggregation is None:
        return None
    model, clients = context.model, context.data.client_count
    rule = CheckedRule(parts.aggregation, model)
    refuse_wrong_signatures("rule", rule.rule)
    refuse_uncalled("rule", rule.rule)
    if is_own(parts.aggregation):
        cohort = parts.algorithm.expected_cohort(clients) or clients
        refuse_unrepeatable(parts.aggregation, model, max(1, round(cohort)))
    return rule


def _attackers(parts: Parts, data: FederatedData) -> MaliciousClients:
    """Make the attackers of a run. Raises ConfigError for what are no attackers."""
    from fedpriv.attacks.malicious import MaliciousClients
    from fedpriv.experiment.uncalled import refuse_uncalled

    assert parts.attack is not None
    attackers = parts.attack.start(data)
    if not isinstance(attackers, MaliciousClients):
        raise ConfigError(
            f"attack: {type(parts.attack).__name__}.start must return an object of a class that extends "
            f"{MaliciousClients.__module__}.MaliciousClients, got {type(attackers).__name__}"
        )
    refuse_wrong_signatures("attackers", attackers)
    refuse_uncalled("attackers", attackers)
    return attackers


def _probe_own_model(parts: Parts, context: RunContext) -> tuple[int, ...]:
    """Refuse a model of the user's own in which one record reaches another; return the sizes of the lots it
    was probed with. What its first call makes, caches say, is there afterwards. Raises ConfigError."""
    from fedpriv.engine.probe import lot_sizes, refuse_dependent_records

    algorithm, data, model = parts.algorithm, context.data, context.model
    largest = int(data.records_per_client.max())
    clients = min(data.client_count, algorithm.clients_per_round or data.client_count)
    everyone = algorithm.records_per_step(clients / data.client_count * len(data.train))
    of_client: float = algorithm.batch_size or largest
    if algorithm.unit == "record":
        of_client = algorithm.sampling_of(largest).expected_size(largest)
    sizes = lot_sizes(model.size, [of_client, everyone], model.isolated)

    def draw(records: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, targets = context.random_records(records)
        return inputs.cpu(), targets.cpu()

    engine = parts.settings.runtime.engine
    refuse_dependent_records(model.module, draw, sizes, engine, model.isolated)
    if not model.isolated:
        model.record_losses(*context.random_records(2))
    return tuple(sizes)


def _planted(
    parts: Parts, data: FederatedData, count: int, size: int, seed: int, canary: str
) -> PlantedCanaries:
    from fedpriv.attacks.canaries import PlantedDirections, make_canaries
    from fedpriv.attacks.mislabelled import PlantedMislabelled, make_mislabelled

    asked: dict[str, Any] = {
        "count": count,
        "unit": parts.algorithm.unit,
        "neighbours": parts.costs().sampling.neighbours,
        "seed": seed,
    }
    try:
        if canary == MISLABELLED:
            return PlantedMislabelled(make_mislabelled(data, **asked))
        return PlantedDirections(make_canaries(data, size=size, **asked))
    except ArgumentError as error:
        key = "audit=epsilon:M" if parts.settings.canaries else "--canaries"
        raise ConfigError(key, error.value, error.allowed) from None


def _room(parts: Parts, data: FederatedData, size: int, canary: str) -> int:
    """For how many canaries there is room."""
    from fedpriv.attacks.canaries import most_canaries
    from fedpriv.attacks.mislabelled import most_mislabelled

    if canary == MISLABELLED:
        return most_mislabelled(data)
    return most_canaries(data, parts.algorithm.unit, size)


def _probes(module: nn.Module) -> int:
    """With how many records a model is looked at: fewer if each takes much memory."""
    from fedpriv.models.checks import PROBES

    return max(4, min(PROBES, 2**24 // getattr(module, "values_per_record", 1)))


def refuse_smaller_clients(parts: Parts, smallest: int) -> None:
    """A claim about clients of n records is not about smaller ones."""
    assumed = parts.algorithm.assumed.get("records", 0)
    if assumed > smallest:
        raise ConfigError(
            "algorithm.records", assumed, f"<= {smallest}, the records of the smallest client"
        )


def work_per_round(parts: Parts, context: RunContext) -> float:
    """Parameters × records (copies of them) of one local step of all clients: a measure of how much there is
    to do."""
    algorithm, data = parts.algorithm, context.data
    share = min(1.0, (algorithm.clients_per_round or data.client_count) / data.client_count)
    records = algorithm.records_per_step(share * float(data.records_per_client.sum()))
    copies = 1 if algorithm.augmentation is None else algorithm.augmentation.multiplicity
    return context.model.size * records * copies


def make_budget(parts: Parts, data: FederatedData | ClientSizes, attackers: np.ndarray) -> Budget:
    """Ledger and totals; refuses a budget that allows no client a round.

    Under Poisson sampling all clients pay the same. With lots of a fixed size those with more
    records pay less; a client that cannot afford a round is left out, as in any later round.
    """
    settings = parts.settings
    for records in np.unique(data.records_per_client)[::-1]:
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
        claim=parts.algorithm.claim,
        first=plan.first,
        adaptation=adaptation,
        trust=parts.algorithm.trust,
        attackers=attackers,
    )
    if parts.unprotected:  # a checkpoint's ledger, which has it already, takes this one's place
        budget.expose(parts.unprotected)
    return budget


def saved_state(
    folder: RunFolder, identity: dict[str, object], device: torch.device
) -> tuple[dict[str, Any] | None, str | None]:
    """The checkpoint to continue from, None for a run that was killed before its first one; and why it is
    not the newest."""
    if not checkpoint.exists(folder) and folder.config.exists():
        checkpoint.refuse_other_identity(folder, StoredRun(folder).identity, identity)
        checkpoint.refuse_lost(folder)
        return None, None
    return checkpoint.load(folder, identity, device)


def new_run_folder(parts: Parts) -> RunFolder:
    """Make the folder of a new run. Raises ConfigError where it cannot be made."""
    settings = parts.settings
    if settings.runtime.run_dir is not None:
        return RunFolder(settings.runtime.run_dir).create()
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    name = f"{parts.algorithm.name}_{parts.dataset.name}"
    if settings.runtime.diagnostics:
        name += f"_seed{settings.seed}"
    return new_folder(settings.runtime.output_dir, f"{name}_{stamp}")
