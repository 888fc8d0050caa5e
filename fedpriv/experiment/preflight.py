"""Refusals that need more than the configuration: a folder, a device, or the data.

A dry run finds them, and a sweep finds them for all of its jobs before the first job runs. Torch is imported
and the data are read only where nothing less tells.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from fedpriv.common import config as configuration
from fedpriv.common.errors import FedprivError
from fedpriv.common.files import locked
from fedpriv.data.federated import (
    ClientSizes,
    clients_of,
    federate,
    smallest_client,
    split_records,
)
from fedpriv.data.records import CLASSIFICATION
from fedpriv.experiment import assemble, checkpoint
from fedpriv.experiment.instantiate import within_group
from fedpriv.experiment.machine import refuse_many_processes, resolve_device, threads_restored
from fedpriv.experiment.own_code import own_targets
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import Plan
from fedpriv.store.folder import RunFolder, not_resumable
from fedpriv.store.stored_run import StoredRun

_DATA_GROUPS = ("dataset", "features", "partition", "model", "attack")


Known = MutableMapping[str, ClientSizes | None]
"""Sizes of clients by the fingerprint of what they depend on; None: known once the data are downloaded."""


def rehearse(parts: Parts, plan: Plan, config: DictConfig) -> ClientSizes | None:
    """Return the public sizes of the clients, or None where the data are not read.

    Raise whatever a run of ``config`` would raise before its first round, and leave no file behind.

    Data that a run would download first are not checked. A run that is finished in its folder needs no data.

    Args:
        parts: The parts of the run.
        plan: Its plan.
        config: Its configuration.

    Raises:
        FedprivError: The run would be refused.
    """
    refuse_unstartable(parts, plan)
    folder = _existing_folder(parts)
    with ExitStack() as held:
        if folder is not None and _is_finished(folder, parts, config, held):
            return None
        known: Known = {}
        refuse_unusable_data(parts, config, known, download=False)
    if folder is None:
        _refuse_unwritable(parts)
    return next(iter(known.values()))


def refuse_unstartable(parts: Parts, plan: Plan) -> None:
    """Raise ConfigError for trackers that do not work here, too many processes, or a budget for no round.

    Where the cost of a client depends on its records, the budget is checked once the data are read.
    """
    for tracker in parts.trackers.values():
        tracker.refuse_unusable()
    refuse_many_processes("runtime.workers", parts.settings.runtime.workers)
    if not parts.algorithm.cost_depends_on_records:
        plan.refuse_if_impossible(parts.settings.epsilon)


def refuse_unusable_data(parts: Parts, config: DictConfig, known: Known, download: bool) -> None:
    """Raise DataError or ConfigError for an absent device, and for data that the run cannot use.

    Args:
        parts: The parts of the run.
        config: Its configuration.
        known: Sizes of clients that were found before, for jobs with the same data.
        download: Fetch absent data, as a run does. Else absent data are not checked.
    """
    device = parts.settings.runtime.device
    if device not in ("auto", "cpu"):
        resolve_device(device)
    has_own_code = bool(own_targets(configuration.identity(config)))
    key = _data_key(parts, config, has_own_code)
    if key not in known:
        # Attackers, canaries and the fast engine are checked against data and model together.
        settings = parts.settings
        checked_with_model = parts.attack is not None or settings.canaries > 0
        checked_with_model = checked_with_model or parts.model.starting_point is not None
        needs_model = has_own_code or checked_with_model or settings.runtime.engine == "fast"
        known[key] = _sizes(parts, needs_model, download)
    sizes = known[key]
    if sizes is None:
        return
    within_group("algorithm", lambda: parts.algorithm.check_clients(sizes.client_count))
    assemble.refuse_smaller_clients(parts, smallest_client(sizes))
    if parts.private and parts.algorithm.cost_depends_on_records:
        assemble.make_budget(parts, sizes, np.zeros(0, dtype=int))


def _data_key(parts: Parts, config: DictConfig, has_own_code: bool) -> str:
    """Return the fingerprint of all keys that decide client sizes or whether the data are usable."""
    values: Mapping[str, Any] = configuration.identity(config)
    if not (has_own_code or parts.attack is not None or parts.settings.canaries):
        values = {k: v for k, v in values.items() if k.partition(".")[0] in _DATA_GROUPS}
    reads = parts.reads_validation
    return configuration.fingerprint(
        {**values, "validation": reads, "engine": parts.settings.runtime.engine}
    )


def _sizes(parts: Parts, needs_model: bool, download: bool) -> ClientSizes | None:
    """Return the sizes of the clients; None where the data are absent and a run would download them."""
    images = parts.dataset.without_features()
    if not download and images.to_be_downloaded:
        return None
    images.prepare()
    if needs_model:
        return _client_sizes(parts)
    seed = parts.split_seed
    reads = parts.reads_validation
    sizes_of_users = images.records_of_users if parts.partition.by_user else None
    by_count = images.known and (parts.partition.by_count or sizes_of_users is not None)
    whole_users = reads and parts.partition.by_user and parts.algorithm.unit == "client"
    # A partition by labels, say, needs the data themselves.
    if not by_count or whole_users:
        data = federate(
            images, parts.partition, validation=reads, seed=seed, unit=parts.algorithm.unit
        )
        return ClientSizes(data.records_per_client)
    images.verify()
    records, users = images.train_records, None
    if sizes_of_users is not None:
        users = np.repeat(np.arange(len(sizes_of_users)), sizes_of_users)
    if reads:
        train, _ = split_records(records, images.validation_records, parts.partition, seed)
        records, users = len(train), None if users is None else users[train]
    one_label = images.task == CLASSIFICATION
    # Such a partition asks for users and the number of labels alone: made-up labels serve, and no record is
    # read.
    labels = np.zeros(records if one_label else (records, 1), dtype=np.int8)
    return ClientSizes(clients_of(parts.partition, labels, users).sizes)


def _client_sizes(parts: Parts) -> ClientSizes:
    """Build all that a run has before its first round, and return the sizes of the clients."""
    from fedpriv.experiment.loop import Loop
    from fedpriv.experiment.second_draw import second_draw

    device = resolve_device(parts.settings.runtime.device)
    with threads_restored():
        context = assemble.context_with_canaries(parts, device)
        budget = None
        if parts.private:
            budget = assemble.make_budget(parts, context.data, assemble.attackers_of(context))
        second_draw(parts, context)
        Loop(parts, context, budget)
    return ClientSizes(context.data.records_per_client)


def hold(held: ExitStack, folder: RunFolder) -> None:
    """Lock the folder until ``held`` closes. Raise FedprivError if another process has locked it."""
    if not held.enter_context(locked(folder.path)):
        raise FedprivError(f"{folder.path} is being run by another process")


def resumed_folder(resume: str) -> RunFolder:
    """Return the folder of the run that is resumed.

    Raises:
        ConfigError: There is no such folder, or it holds links, which may lead elsewhere.
    """
    folder = RunFolder(resume)
    if not folder.path.is_dir():
        raise not_resumable(resume)
    folder.refuse_links()
    return folder


def _existing_folder(parts: Parts) -> RunFolder | None:
    """Return the folder of a run that exists already; None for a new run."""
    settings = parts.settings
    if settings.resume:
        return resumed_folder(settings.resume)
    if settings.runtime.reused_dir is None:
        return None
    folder = RunFolder(settings.runtime.reused_dir)
    return folder if folder.config.exists() else None


def _is_finished(folder: RunFolder, parts: Parts, config: DictConfig, held: ExitStack) -> bool:
    """Return whether the run is finished in its folder. Raise ConfigError where it cannot go on there."""
    settings, identity = parts.settings, configuration.identity(config)
    stored = StoredRun(folder)
    if settings.runtime.reuse and stored.finished:
        checkpoint.refuse_other_identity(folder, stored.identity, identity)
        return True
    if settings.resume:
        hold(held, folder)
    assemble.saved_state(folder, identity, resolve_device(settings.runtime.device))
    return False


def _refuse_unwritable(parts: Parts) -> None:
    """Make the run folder and remove it again. Raise ConfigError where it cannot be made."""
    runtime = parts.settings.runtime
    path = Path(runtime.run_dir or runtime.output_dir)
    existing = next(p for p in (path, *path.parents) if _exists(p))
    made = assemble.new_run_folder(parts).path
    with suppress(OSError):
        (made / "plots").rmdir()
        while made != existing and made not in existing.parents:
            made.rmdir()
            made = made.parent


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
