"""The keys of a configuration that belong to no group, checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from omegaconf import DictConfig, ListConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError, did_you_mean, nearest
from fedpriv.common.groups import GROUPS
from fedpriv.data.names import CANARIES as CANARY_KINDS
from fedpriv.data.names import DIRECTION, NONMEMBERS, Shadow
from fedpriv.experiment.averaging import Averaging, averaging_of
from fedpriv.experiment.warm_start import WarmStart, warm_start_of
from fedpriv.privacy.core.names import BUDGET_VIEWS, SOUND

PROGRESS = ("auto", "live", "lines", "none")
ENGINES = ("auto", "fast", "opacus")
RAY = "ray"
EPSILON_AUDIT = "epsilon"
_OF_AVERAGING = ("averaging", "averaging_decay", "averaging_start")
CANARIES = 1000
"""Number of canaries of ``audit=epsilon``, which names no number."""


@dataclass(frozen=True)
class Runtime:
    """The keys of ``runtime``: how a run is executed, and where. No result depends on them but by rounding.

    Attributes:
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        engine: ``auto``, ``fast`` or ``opacus``: what computes gradients of single records.
        threads: Number of torch's threads; None lets the work of a round decide.
        output_dir: Folder in which new runs get a folder each.
        run_dir: Folder of this very run; None for a new one in ``output_dir``.
        reuse: A run that is in ``run_dir`` already is not made again, and goes on there if it was
            interrupted.
        diagnostics: The folder may hold exact private values, seeds and times; False with ``publish``.
        progress: How the run is shown, one of :data:`PROGRESS`.
        plots: Plots are drawn at the end.
        checkpoint_interval: Number of rounds between two checkpoints, unless five minutes pass first.
        stop_file: Path of a file whose appearance asks the run to end; None if there is none.
        snapshot_interval: Number of rounds between two snapshots; None for no snapshots.
        workers: Number of processes that share the clients' computation; 1: this process computes alone.
        worker_restarts: Number of workers that may be lost; others take their places.
        worker_timeout: Seconds within which a worker must answer.
        cluster: ``ray`` where the nodes of a Ray cluster compute; None: this machine does.
        cluster_address: Address of the cluster; None: Ray's own variable names it, or it is on this machine.
        trusted_network: A cluster whose network strangers could use is allowed.
    """

    device: str
    engine: str
    threads: int | None
    output_dir: str
    run_dir: str | None
    reuse: bool
    diagnostics: bool
    progress: str
    plots: bool
    checkpoint_interval: int
    stop_file: str | None
    snapshot_interval: int | None = None
    workers: int = 1
    worker_restarts: int = 0
    worker_timeout: float = 1800.0
    cluster: str | None = None
    cluster_address: str | None = None
    trusted_network: bool = False

    @property
    def reused_dir(self) -> str | None:
        """The run folder that may hold this very run already; None if no run is reused."""
        return self.run_dir if self.reuse else None


@dataclass(frozen=True)
class Settings:
    """The checked root keys of a configuration, see ``conf/config.yaml``, and what follows from them.

    Attributes:
        epsilon: The budget; None for no budget.
        delta: δ at which ε is stated.
        rounds: T, the largest number of rounds; None if only the budget ends the run.
        budget_view: ``sound`` or ``published``: the analysis by which the budget is enforced.
        seed: Seed of the partition and of the initial weights.
        noise_seed: Seed of lots, cohorts and noise, together with ``seed``; unused with ``publish``.
        evaluation_interval: Number of rounds between two evaluations; the last round is always evaluated.
        dry_run: The run is planned and checked, and not run.
        resume: Folder of the run that goes on; None for a new run.
        runtime: The keys of ``runtime``.
        audit: Audits that are made once the run has ended.
        canaries: Number of canaries that the run plants; 0 without an audit of ε.
        canary: Kind of these canaries.
        publish: The randomness comes from the operating system, so that results may be given away.
        publish_test_metrics: Test metrics may be given away too: the test records are public.
        publish_validation_metrics: So may validation losses: the validation records are public.
        shadow: Half of the data on which a shadow run of an audit trains; None for any other run.
        averaging: How released models are averaged for evaluation; None if they are not.
        paired: Name of the simulations that share lots, cohorts and noise with this run; None if none do.
        chunk: Number of clients that compute together; None: see
            :func:`fedpriv.experiment.machine.chunk_size`.
        warm_start: How the initial weights are trained before round 1; None if they are not.
    """

    epsilon: float | None
    delta: float
    rounds: int | None
    budget_view: str
    seed: int
    noise_seed: int
    evaluation_interval: int
    dry_run: bool
    resume: str | None
    runtime: Runtime
    audit: tuple[str, ...] = ()
    canaries: int = 0
    canary: str = DIRECTION
    publish: bool = False
    publish_test_metrics: bool = False
    publish_validation_metrics: bool = False
    shadow: Shadow | None = None
    averaging: Averaging | None = None
    paired: str | None = None
    chunk: int | None = None
    warm_start: WarmStart | None = None

    @property
    def sound(self) -> bool:
        """True if the budget is enforced on the sound ε."""
        return self.budget_view == SOUND


def read_settings(config: DictConfig) -> Settings:
    """Read and check every root key.

    With ``publish`` the diagnostics are switched off, whatever ``runtime.diagnostics`` says.

    Raises:
        ConfigError: A key is unknown, missing, or has a value that is not allowed, or two root keys exclude
            each other.
    """
    known = {*Settings.__dataclass_fields__, *GROUPS, "protocol", *_OF_AVERAGING}
    for key in config:
        if key == "figure":
            raise ConfigError(
                "the key figure is not one of a run; a figure is a sweep: "
                "fedpriv train -m +figure=NAME"
            )
        if key not in known:
            meant = did_you_mean(str(key), known, "; ")
            raise ConfigError(f"unknown key {key!s}{meant}")
    try:
        audits = _read_audits(config.get("audit"))
        canaries, canary = canaries_of(audits)
        settings = Settings(
            epsilon=_optional(checks.number, "epsilon", config.epsilon, above=0),
            delta=checks.number("delta", config.delta, above=0, below=1),
            rounds=_optional(checks.whole, "rounds", config.rounds, at_least=1),
            budget_view=checks.one_of("budget_view", config.budget_view, BUDGET_VIEWS),
            seed=checks.seed("seed", config.seed),
            noise_seed=checks.seed("noise_seed", config.noise_seed),
            evaluation_interval=checks.whole(
                "evaluation_interval", config.evaluation_interval, at_least=1
            ),
            dry_run=checks.boolean("dry_run", config.dry_run),
            resume=_optional(checks.text, "resume", config.resume),
            runtime=_read_runtime(config.runtime),
            audit=audits,
            canaries=canaries,
            canary=canary,
            publish=checks.boolean("publish", config.get("publish") or False),
            publish_test_metrics=checks.boolean(
                "publish_test_metrics", config.get("publish_test_metrics") or False
            ),
            publish_validation_metrics=checks.boolean(
                "publish_validation_metrics", config.get("publish_validation_metrics") or False
            ),
            shadow=_read_shadow(config.get("shadow")),
            paired=_optional(checks.text, "paired", config.get("paired")),
            chunk=_optional(checks.whole, "chunk", config.get("chunk"), at_least=1),
            warm_start=warm_start_of(config.get("warm_start")),
        )
        kind, decay, start = (config.get(key) for key in _OF_AVERAGING)
        averaging = averaging_of(kind, decay, start, settings.rounds)
        settings = replace(settings, averaging=averaging)
    except ArgumentError as error:
        raise error.within("") from None
    except (ConfigAttributeError, ConfigKeyError) as error:
        raise ConfigError(f"{error.full_key} was deleted (~), and every run needs it") from None
    if settings.shadow is not None and (settings.publish or settings.audit or settings.paired):
        key = "publish" if settings.publish else "audit" if settings.audit else "paired"
        raise ConfigError(
            f"{key} must be null with shadow: a shadow run is part of an audit, and private"
        )
    if settings.publish:
        # Not refused, as diagnostics are on by default.
        return replace(settings, runtime=replace(settings.runtime, diagnostics=False))
    return settings


def _read_runtime(node: object) -> Runtime:
    if not isinstance(node, DictConfig):
        raise ArgumentError("runtime", node, "a group of keys (device, engine, ...)")
    for key in node:
        if key not in Runtime.__dataclass_fields__:
            # Hydra lets a user add keys to a group with +, so a misspelt key must be refused here.
            near = nearest(str(key), Runtime.__dataclass_fields__)
            hint = f"; did you mean runtime.{near}?" if near else ""
            raise ConfigError(f"unknown key runtime.{key!s}{hint}")
    return Runtime(
        device=checks.text("runtime.device", node.device),
        engine=checks.one_of("runtime.engine", node.engine, ENGINES),
        threads=_optional(checks.whole, "runtime.threads", node.threads, at_least=1),
        output_dir=checks.text("runtime.output_dir", node.output_dir),
        run_dir=_optional(checks.text, "runtime.run_dir", node.run_dir),
        reuse=checks.boolean("runtime.reuse", node.reuse),
        diagnostics=checks.boolean("runtime.diagnostics", node.diagnostics),
        progress=checks.one_of("runtime.progress", node.progress, PROGRESS),
        plots=checks.boolean("runtime.plots", node.plots),
        checkpoint_interval=checks.whole(
            "runtime.checkpoint_interval", node.checkpoint_interval, at_least=1
        ),
        stop_file=_optional(checks.text, "runtime.stop_file", node.stop_file),
        snapshot_interval=_optional(
            checks.whole, "runtime.snapshot_interval", node.get("snapshot_interval"), at_least=1
        ),
        workers=checks.whole("runtime.workers", node.get("workers", 1), at_least=1),
        worker_restarts=checks.whole("runtime.worker_restarts", node.get("worker_restarts", 0)),
        worker_timeout=checks.number(
            "runtime.worker_timeout", node.get("worker_timeout", 1800.0), above=0, at_most=1e9
        ),
        cluster=_optional(checks.one_of, "runtime.cluster", node.get("cluster"), options=(RAY,)),
        cluster_address=_optional(
            checks.text, "runtime.cluster_address", node.get("cluster_address")
        ),
        trusted_network=checks.boolean(
            "runtime.trusted_network", node.get("trusted_network") or False
        ),
    )


def canaries_of(audits: Iterable[str]) -> tuple[int, str]:
    """Return the number and the kind of the canaries that audits ask for.

    ``epsilon:M:KIND`` and ``epsilon:M`` name the number, ``epsilon`` alone means :data:`CANARIES`. The first
    such audit counts. Other audits plant none: then the number is 0.

    Raises:
        ArgumentError: M is no whole number from 2 on, or KIND is unknown.
    """
    for text in audits:
        name, *rest = text.split(":", 2)
        if name == EPSILON_AUDIT:
            count, kind = CANARIES, DIRECTION
            if rest:
                number = int(rest[0]) if rest[0].isdigit() else rest[0]
                count = checks.whole("audit=epsilon:M", number, at_least=2)
            if len(rest) == 2:
                kind = checks.one_of("audit=epsilon:M:KIND, KIND", rest[1], CANARY_KINDS)
            return count, kind
    return 0, DIRECTION


def _read_audits(value: object) -> tuple[str, ...]:
    """Return the texts of the audits to be made; :mod:`fedpriv.tools.audit.request` reads each text."""
    if value is None:
        return ()
    several = value if isinstance(value, ListConfig) else [value]
    if not len(several) or not all(isinstance(text, str) and text.strip() for text in several):
        raise ArgumentError("audit", value, "null, membership, property:CHOICE, epsilon, or a list")
    return tuple(several)


def _read_shadow(node: object) -> Shadow | None:
    if node is None:
        return None
    keys = tuple(Shadow.__dataclass_fields__)
    if not isinstance(node, DictConfig) or set(node) != set(keys):
        raise ArgumentError("shadow", node, f"null, or a group of the keys {', '.join(keys)}")
    return Shadow(
        checks.whole("shadow.half", node.half, at_least=0),
        checks.one_of("shadow.nonmembers", node.nonmembers, NONMEMBERS),
        checks.seed("shadow.seed", node.seed),
    )


def _optional(check, name, value, **bounds):  # type: ignore[no-untyped-def]
    return None if value is None else check(name, value, **bounds)
