"""The starting point of a run: initial weights from a file, and parameters that stay as they begin.

Weights that are declared public cost nothing. Those of an earlier run of fedpriv are never public: what that
run released on the same data is charged before the first round, so that every ε is that of both runs. Any
other weights have a caveat, and a run that begins with them is not published.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from fedpriv.common import checks
from fedpriv.common.config import as_tree, file_digest, flatten, weights_file
from fedpriv.common.errors import ArgumentError, ConfigError, did_you_mean
from fedpriv.common.notices import notice
from fedpriv.common.words import in_short
from fedpriv.privacy.accountants import RdpAccountant
from fedpriv.privacy.core.names import SOUND
from fedpriv.store.joint_privacy import population, stored_cost
from fedpriv.store.saved import saved_tensors
from fedpriv.store.searches import is_search
from fedpriv.store.stored_run import StoredRun

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent
    from torch import nn

KEYS = ("weights", "weights_sha256", "weights_are_public", "freeze")
"""Keys of the group ``model`` that are facts of the run, and no arguments of a class."""
EARLIER_RUN = "earlier_run"
"""Name in the ledger of what the run released whose weights are the starting point."""
_OF_RUNS = ("ledger.csv", "privacy.json", "search.json")
"""Files of which one is in every folder of a run or search, and in ``public/``."""


@dataclass(frozen=True)
class StartingPoint:
    """Initial weights and frozen parameters. A call gives them to a module.

    Attributes:
        file: File of a state dict; None: the weights are the module's own.
        sha256: SHA-256 of the file; None without one.
        public: True if the weights are declared to follow from public records alone.
        freeze: Patterns of names of parameters that do not train.
        run: Run of fedpriv that the file belongs to; None: no run.
        population: Name of the people whom the data of the new run are about.
    """

    file: Path | None
    sha256: str | None
    public: bool
    freeze: tuple[str, ...]
    run: StoredRun | None
    population: str

    def __call__(self, module: nn.Module) -> None:
        """Set the weights of a module, and freeze parameters.

        Raises:
            ConfigError: The file cannot be read or does not fit, or a pattern matches no parameter.
        """
        parameters = dict(module.named_parameters())
        missing = [] if self.file is None else _load(module, self.file)
        known = f"patterns of parameters that model.weights has ({in_short(tuple(parameters))})"
        for pattern in self.freeze:
            names = fnmatch.filter(parameters, pattern)
            lost = in_short([name for name in names if name in missing])
            if lost or not names:
                hint = f"it lacks {lost}" if lost else did_you_mean(pattern, parameters)
                raise ConfigError("model.freeze", pattern, known, hint)
            for name in names:
                parameters[name].requires_grad_(False)
        if not any(parameter.requires_grad for parameter in parameters.values()):
            allowed = "patterns that leave a parameter to train"
            raise ConfigError("model.freeze", list(self.freeze), allowed)

    def describe(self) -> str:
        """Describe the starting point for the plan."""
        frozen = [f"frozen: {', '.join(self.freeze)}"] if self.freeze else []
        weights = [] if self.file is None else [f"weights of {self.file} (SHA-256 {self.sha256})"]
        return ", ".join((*weights, *frozen))

    @property
    def publishable(self) -> bool:
        """True if the weights are public, released by a published run, or the module's own."""
        published = self.run is not None and self.run.values.get("publish") is True
        return self.file is None or self.public or published

    @property
    def caveat(self) -> str | None:
        """Sentences for the privacy statement; None where the weights are the module's own."""
        if self.file is None:
            return None
        origin = (
            "of which nothing is declared: if they were trained on records that are to be protected here, "
            "no epsilon covers that."
        )
        if self.run is not None:
            origin = (
                "which an earlier run on the same data released: each client is charged for all that the "
                f"most expensive client of that run released ({EARLIER_RUN} in ledger.csv), and every "
                "epsilon is that of both runs. The caveats of that run hold here, too."
            )
        elif self.public:
            origin = (
                "declared public (model.weights_are_public): no epsilon protects the records that they were "
                "trained on."
            )
        return f"The initial weights are from a file with SHA-256 {self.sha256}, {origin}"

    def releases(self, unit: str, neighbours: str, adaptive: bool) -> dict[DpEvent, int]:
        """Return what the earlier run released of any client, at most, as events with their numbers.

        Args:
            unit: Unit of privacy of the new run.
            neighbours: Adjacency of the new run.
            adaptive: True if the noise of the new run follows from what it releases.

        Raises:
            ConfigError: The earlier run has no finite ε, or one that does not compose with the new run.
        """
        if self.run is None:
            return {}
        cost, theirs = stored_cost(self.run), population(self.run.values)
        mine = f"this run about {self.population} (dataset.population names people)"
        reasons = {
            "it is a trial of a search": is_search(self.run.path.resolve().parent),
            f"it is about {theirs} and {mine}": theirs != self.population,
            "it is not private, or protects another unit": not cost
            or cost.view != (unit, neighbours),
            "the noise follows from releases, is shared, or has no finite ε": adaptive
            or (cost and (cost.paired or cost.rdp(RdpAccountant()) is None)),
        }
        if why := next((reason for reason, holds in reasons.items() if holds), None):
            run = f"model.weights={self.file} is of the run {self.run.path}"
            raise ConfigError(f"{run}, and the two ε cannot be composed: {why}")
        most: Counter[DpEvent] = Counter()
        for counts in self.run.ledger(SOUND).of_client.values():
            most |= Counter(counts)
        return dict(most)


def _load(module: nn.Module, file: Path) -> list[str]:
    """Load a state dict into a module, and return the names that the file lacks.

    Raises:
        ConfigError: The file has other names than the module, or other shapes.
    """
    known, state = module.state_dict(), saved_tensors(file, "cpu")
    if not isinstance(state, dict) or not all(hasattr(value, "shape") for value in state.values()):
        raise ConfigError("model.weights", str(file), "a file of a state dict: tensors by name")
    missing, unknown = [n for n in known if n not in state], [n for n in state if n not in known]
    faults = [
        f"{name} has shape {list(value.shape)} and the model's {list(known[name].shape)}"
        for name, value in state.items()
        if name in known and value.shape != known[name].shape
    ]
    if unknown or faults or len(missing) == len(known):
        lists = {"unexpected": unknown, "missing": missing}
        faults += [f"{kind}: {in_short(names)}" for kind, names in lists.items() if names]
        anew = "leave out of the file what is to begin anew"
        raise ConfigError(
            f"model.weights={file} does not fit the model: {'; '.join(faults)}; {anew}"
        )
    module.load_state_dict(state, strict=False)
    if missing:
        notice(f"model.weights={file} lacks {in_short(missing)}: these begin as without the file")
    return missing


def starting_point_of(config: DictConfig) -> StartingPoint | None:
    """Return the starting point that the group ``model`` of a configuration asks for, or None.

    Raises:
        ArgumentError: A value is not allowed.
        ConfigError: The file is absent or another than stated, or a run's weights are declared public.
    """
    node: dict[str, Any] = as_tree(config.model)
    given, sha256, public, freeze = (node.get(key) for key in KEYS)
    patterns = checks.sequence("freeze", freeze or [], "null, or a list of patterns of names")
    texts = tuple(checks.text("freeze", pattern) for pattern in patterns)
    public = checks.boolean("weights_are_public", public or False)
    people = population(flatten(as_tree(config)))
    if given is None:
        if public:
            raise ArgumentError("weights_are_public", public, "null without model.weights")
        return StartingPoint(None, None, False, texts, None, people) if texts else None
    file = weights_file(checks.text("weights", given))
    if (found := file_digest(file)) is None:
        raise ArgumentError("weights", given, "a file that can be read")
    if sha256 != found:
        raise ArgumentError("weights_sha256", sha256, f"{found}, which {file} has")
    if (run := run_of(file)) is not None and public:
        hint = f"the ledger of {run.path} says what they cost"
        raise ArgumentError("weights_are_public", public, "null with weights of a run", hint)
    return StartingPoint(file, sha256, public, texts, run, people)


def run_of(file: Path) -> StoredRun | None:
    """Return the run, or the published part of a run, that a file belongs to; None: none."""
    folders = file.resolve().parents[:2]  # <run>/model.pt, <run>/public/model.pt
    marked = (folder for name in _OF_RUNS for folder in folders if (folder / name).exists())
    return next(map(StoredRun, marked), None)
