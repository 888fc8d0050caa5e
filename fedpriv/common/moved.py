"""The table of modules that moved. Old paths keep working.

A ``_target_`` of ``conf/`` is part of a run's identity and never changes, and users import from fedpriv. So a
moved module stays importable under its old path. :func:`install` lets Python find old paths, :func:`current`
returns the present path of a name, and :func:`first_name` returns the name of a class in digests and
checkpoints, which must not change with a move.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def _same_names(old: str, new: str, names: str) -> dict[str, str]:
    """Map the modules that moved from one folder to another and kept their names."""
    return {f"{old}.{name}": f"{new}.{name}" for name in names.split()}


_RENAMED = {
    "fedpriv.privacy.accountants.monte_carlo_price": "fedpriv.privacy.accountants.monte_carlo_cost",
    "fedpriv.store.before": "fedpriv.store.prior_releases",
    "fedpriv.tools.verify.again": "fedpriv.tools.verify.repeat_runs",
    "fedpriv.tools.verify.left": "fedpriv.tools.verify.outgoing",
    "fedpriv.tools.verify.outside": "fedpriv.tools.verify.side_channels",
    "fedpriv.tools.verify.stated": "fedpriv.tools.verify.ledger_claims",
    "fedpriv.tools.verify.taps": "fedpriv.tools.verify.probes",
}
"""Intermediate path of a module that moved twice → its path now."""

_FIRST = {
    **_same_names(
        "fedpriv.accounting",
        "fedpriv.tools.accounting",
        "account arguments calibrate flags releases",
    ),
    **_same_names(
        "fedpriv.audit",
        "fedpriv.tools.audit",
        "attacks bound certified classifier command contributions flags membership "
        "properties property_inference records report request shadow_attacks shadow_runs "
        "statistics subject",
    ),
    **_same_names(
        "fedpriv.figures",
        "fedpriv.study.figures",
        "certified ftrl privacy wei",
    ),
    **_same_names(
        "fedpriv.privacy",
        "fedpriv.privacy.core",
        "columns discrete_events events grid integer_noise min_sep_events modular "
        "names noise rdp sampled_gaussian sampling trade_off trust",
    ),
    **_same_names(
        "fedpriv.report",
        "fedpriv.tools.report",
        "charts command curves figure gather labels markup page search sections write",
    ),
    **_same_names(
        "fedpriv.results",
        "fedpriv.store",
        "canary_file caveats colours columns display folder "
        "ledger_file packed pairs plots public run_plots saved searches statement "
        "sweep tables",
    ),
    **_same_names(
        "fedpriv.verify",
        "fedpriv.tools.verify",
        "chance charge checks command context correlated directions discreteness "
        "draws files lots noise sampling sensitivity shares "
        "statistics subject synthetic table units variations",
    ),
    "fedpriv.algorithms.client_work": "fedpriv.algorithms.upload_computation",
    "fedpriv.algorithms.local_steps": "fedpriv.algorithms.record_level",
    "fedpriv.algorithms.problem": "fedpriv.algorithms.run_context",
    "fedpriv.algorithms.record_work": "fedpriv.algorithms.record_computation",
    "fedpriv.algorithms.server_step": "fedpriv.algorithms.client_level",
    "fedpriv.algorithms.work": "fedpriv.algorithms.client_computation",
    "fedpriv.audit.epsilon.audit": "fedpriv.tools.audit.epsilon_audit",
    "fedpriv.audit.epsilon.estimate": "fedpriv.tools.audit.epsilon_estimate",
    "fedpriv.audit.epsilon.evaluate": "fedpriv.tools.audit.epsilon_evaluate",
    "fedpriv.audit.epsilon.families": "fedpriv.tools.audit.epsilon_families",
    "fedpriv.audit.epsilon.guesses": "fedpriv.tools.audit.epsilon_guesses",
    "fedpriv.audit.epsilon.independent": "fedpriv.tools.audit.epsilon_independent",
    "fedpriv.audit.epsilon.one_run": "fedpriv.tools.audit.epsilon_one_run",
    "fedpriv.audit.epsilon.report": "fedpriv.tools.audit.epsilon_report",
    "fedpriv.audit.epsilon.scores_file": "fedpriv.tools.audit.epsilon_scores_file",
    "fedpriv.audit.epsilon.trial": "fedpriv.tools.audit.epsilon_trial",
    "fedpriv.completion": "fedpriv.cli.completion",
    "fedpriv.config": "fedpriv.common.config",
    "fedpriv.data.text.comments": "fedpriv.data.text_comments",
    "fedpriv.data.text.corpus": "fedpriv.data.text_corpus",
    "fedpriv.data.text.dataset": "fedpriv.data.text_dataset",
    "fedpriv.data.text.sentiment140": "fedpriv.data.text_sentiment140",
    "fedpriv.data.text.shakespeare": "fedpriv.data.text_shakespeare",
    "fedpriv.data.text.tokens": "fedpriv.data.text_tokens",
    "fedpriv.data.text.vocabulary": "fedpriv.data.text_vocabulary",
    "fedpriv.data.text.vocabulary_source": "fedpriv.data.text_vocabulary_source",
    "fedpriv.data.text.windows": "fedpriv.data.text_windows",
    "fedpriv.groups": "fedpriv.common.groups",
    "fedpriv.listing": "fedpriv.cli.listing",
    "fedpriv.privacy.clippers.clip": "fedpriv.privacy.clippers.step_clip",
    "fedpriv.privacy.claims": "fedpriv.privacy.mechanisms.claims",
    "fedpriv.privacy.monte_carlo.bound": "fedpriv.privacy.accountants.monte_carlo_bound",
    "fedpriv.privacy.monte_carlo.losses": "fedpriv.privacy.accountants.monte_carlo_losses",
    "fedpriv.privacy.monte_carlo.patterns": "fedpriv.privacy.accountants.monte_carlo_patterns",
    "fedpriv.privacy.monte_carlo.price": "fedpriv.privacy.accountants.monte_carlo_cost",
    "fedpriv.privacy.noise_schedules.base": "fedpriv.privacy.noise_schedule",
    "fedpriv.privacy.noise_schedules.budgeted": "fedpriv.privacy.budgeted_schedules",
    "fedpriv.privacy.noise_schedules.calibrated": "fedpriv.privacy.noise_schedules",
    "fedpriv.privacy.noise_schedules.fixed": "fedpriv.privacy.noise_schedules",
    "fedpriv.privacy.noise_schedules.validation_decay": "fedpriv.privacy.noise_schedules",
    "fedpriv.results.before": "fedpriv.store.prior_releases",
    "fedpriv.runs.choice": "fedpriv.tools.run_choice",
    "fedpriv.runs.flags": "fedpriv.tools.run_flags",
    "fedpriv.runs.folders": "fedpriv.store.run_folders",
    "fedpriv.runs.table": "fedpriv.tools.run_table",
    "fedpriv.search.budget": "fedpriv.study.search_budget",
    "fedpriv.search.objective": "fedpriv.study.search_objective",
    "fedpriv.search.planned": "fedpriv.study.search_planned",
    "fedpriv.search.run": "fedpriv.study.search_run",
    "fedpriv.search.secret_trials": "fedpriv.study.search_secret_trials",
    "fedpriv.search.settings": "fedpriv.study.search_settings",
    "fedpriv.search.space": "fedpriv.study.search_space",
    "fedpriv.search.statement": "fedpriv.study.search_statement",
    "fedpriv.search.stopping": "fedpriv.study.search_stopping",
    "fedpriv.trackers.base": "fedpriv.experiment.tracker",
    "fedpriv.trackers.csv_files": "fedpriv.experiment.trackers",
    "fedpriv.trackers.mlflow": "fedpriv.experiment.trackers",
    "fedpriv.trackers.tensorboard": "fedpriv.experiment.trackers",
    "fedpriv.trackers.wandb": "fedpriv.experiment.trackers",
    "fedpriv.verify.again": "fedpriv.tools.verify.repeat_runs",
    "fedpriv.verify.left": "fedpriv.tools.verify.outgoing",
    "fedpriv.verify.outside": "fedpriv.tools.verify.side_channels",
    "fedpriv.verify.stated": "fedpriv.tools.verify.ledger_claims",
    "fedpriv.verify.taps": "fedpriv.tools.verify.probes",
}
"""First path of a module, that of version 0.2.0 → its path now."""

MOVED = _FIRST | _RENAMED
"""Old module → new module."""

FOLDERS = {
    "fedpriv.accounting": "fedpriv.tools.accounting",
    "fedpriv.audit": "fedpriv.tools.audit",
    "fedpriv.audit.epsilon": "fedpriv.tools.audit",
    "fedpriv.data.text": "fedpriv.data",
    "fedpriv.figures": "fedpriv.study.figures",
    "fedpriv.privacy.monte_carlo": "fedpriv.privacy.accountants",
    "fedpriv.report": "fedpriv.tools.report",
    "fedpriv.results": "fedpriv.store",
    "fedpriv.runs": "fedpriv.tools",
    "fedpriv.search": "fedpriv.study",
    "fedpriv.trackers": "fedpriv.experiment.trackers",
    "fedpriv.verify": "fedpriv.tools.verify",
}
"""Old folder → the folder or module that now has the names exported by the old ``__init__``."""

_FIRST_MODULES = {new: old for old, new in _FIRST.items()} | {
    "fedpriv.experiment.trackers.CsvTracker": "fedpriv.trackers.csv_files",
    "fedpriv.experiment.trackers.MlflowTracker": "fedpriv.trackers.mlflow",
    "fedpriv.experiment.trackers.TensorBoardTracker": "fedpriv.trackers.tensorboard",
    "fedpriv.experiment.trackers.WandbTracker": "fedpriv.trackers.wandb",
    "fedpriv.privacy.noise_schedules.CalibratedNoise": "fedpriv.privacy.noise_schedules.calibrated",
    "fedpriv.privacy.noise_schedules.ConstantNoise": "fedpriv.privacy.noise_schedules.fixed",
    "fedpriv.privacy.noise_schedules.ExponentialNoise": "fedpriv.privacy.noise_schedules.fixed",
    "fedpriv.privacy.noise_schedules.NoNoise": "fedpriv.privacy.noise_schedules.fixed",
    "fedpriv.privacy.noise_schedules.StepNoise": "fedpriv.privacy.noise_schedules.fixed",
    "fedpriv.privacy.noise_schedules.ValidationDecay": "fedpriv.privacy.noise_schedules.validation_decay",
}
"""Module, or class of a merged module → the first module of the class."""

_FIRST_NAMES = {
    "fedpriv.algorithms.client_computation.ClientComputation": "fedpriv.algorithms.work.Work",
    "fedpriv.algorithms.client_computation.LocalStep": "fedpriv.algorithms.work.Turn",
    "fedpriv.algorithms.record_computation.RecordComputation": "fedpriv.algorithms.record_work.RecordWork",
    "fedpriv.algorithms.run_context.RunContext": "fedpriv.algorithms.problem.Problem",
    "fedpriv.algorithms.upload_computation.UploadComputation": "fedpriv.algorithms.client_work.ClientWork",
    "fedpriv.privacy.clippers.step_clip.StepClip": "fedpriv.privacy.clippers.clip.Clip",
    "fedpriv.privacy.clippers.parts.LayerGroups": "fedpriv.privacy.clippers.parts.Parts",
}
"""Class that was renamed → its first dotted path. A user's own clipper may hold an object of such a class,
and the random streams of that run depend on a digest of the attributes of the clipper."""


def current(name: str) -> str:
    """Return the present dotted path of a module, or of a name in a module."""
    parts = name.split(".")
    for length in range(len(parts), 1, -1):
        head = ".".join(parts[:length])
        new = MOVED.get(head) or FOLDERS.get(head)
        if new is not None:
            return ".".join([new, *parts[length:]])
    return name


def first_name(kind: type) -> str:
    """Return the dotted path that a class had at first, which is the path in digests."""
    module, name = kind.__module__, kind.__qualname__
    if renamed := _FIRST_NAMES.get(f"{module}.{name}"):
        return renamed
    first = _FIRST_MODULES.get(f"{module}.{name}") or _FIRST_MODULES.get(module, module)
    return f"{first}.{name}"


def install() -> None:
    """Let Python find modules by their old paths.

    The finder must come first. After a pull of moved modules the old folders may still exist with compiled
    files, and Python's own finder would take these folders for empty packages.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """A finder of old paths. It imports a module only when its old path is requested."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in MOVED:
            return ModuleSpec(name, _Alias(MOVED[name]))
        if name in FOLDERS:
            return ModuleSpec(name, _Folder(FOLDERS[name]), is_package=True)
        return None


class _Alias(Loader):
    """A loader of an old module path. It returns the module of the new path, so that classes exist once."""

    def __init__(self, new: str):
        self._new = new

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._new)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # Python has put the spec of the old path there


class _Folder(Loader):
    """A loader of an old folder: an empty package that looks up names in the new place.

    ``fedpriv.runs`` is both an old folder and a function. Python sets the folder in the function's place once
    an old path below it is imported, so the folder can be called as well.
    """

    def __init__(self, new: str):
        self._new = new

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        def look_up(name: str) -> object:
            if name.startswith("__"):
                raise AttributeError(name)
            try:
                return getattr(importlib.import_module(self._new), name)
            except AttributeError:
                message = f"module {module.__name__!r} has no attribute {name!r}"
                raise AttributeError(message) from None

        vars(module)["__getattr__"] = look_up
        package, _, name = module.__name__.rpartition(".")
        function = vars(sys.modules[package]).get(name)
        if callable(function):
            called = {"__call__": staticmethod(function)}
            module.__class__ = type("CalledFolder", (ModuleType,), called)
            module.__doc__ = function.__doc__
