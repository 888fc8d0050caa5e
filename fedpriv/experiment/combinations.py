"""Parts that do not go together: one table, of which the first row that holds refuses the run.

Without a row ε would be false, a result would silently be something else, or the run would break in a round.
Rows ask parts for attributes that their base classes declare, and hardly ever for a class, so that a user's
own part is treated as one of fedpriv.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from fedpriv.algorithms.dp_ftrl import DpFtrl
from fedpriv.algorithms.naseri import PRINTED, NaseriCdp, NaseriLdp
from fedpriv.attacks.backdoor import Backdoor
from fedpriv.attacks.names import FOLLOW, NOISED_UPLOADS, RAW_UPLOADS, REPLACEMENT
from fedpriv.common.attributes import is_own
from fedpriv.common.errors import ConfigError
from fedpriv.data.base import untested
from fedpriv.data.names import DIRECTION, MISLABELLED
from fedpriv.data.own_table import OwnTable
from fedpriv.data.partitions import Iid
from fedpriv.data.records import CLASSIFICATION
from fedpriv.experiment.instantiate import within_group
from fedpriv.models.own_module import ANY_TASK
from fedpriv.privacy.accountants import PublishedAccountant
from fedpriv.privacy.clippers import ConstantClipper, NoClipper
from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.privacy.larger_cohort import LargerCohort
from fedpriv.privacy.noise_schedules import CalibratedNoise, RecalculatedNoise

if TYPE_CHECKING:
    from fedpriv.experiment.parts import Parts

NO_STATISTICS = (
    "an audit of epsilon does not go with features.normalization=released: its canaries are looked for in "
    "gradients, and not in what is released before the first round"
)


class Refusal(NamedTuple):
    """A row of the table.

    Attributes:
        when: Takes the :class:`~fedpriv.experiment.parts.Parts` of a run, and returns something true if they
            do not go together.
        message: The sentence of the refusal. ``{p}`` stands for the parts, ``{a}`` for the algorithm, ``{s}``
            for the root keys, and ``{found}`` for what ``when`` returned.
    """

    when: Callable[[Any], object]
    message: str


def _first(refused: dict[str, Any]) -> str:
    """Return the first key whose value is true, or nothing."""
    return next((name for name, holds in refused.items() if holds), "")


def _beside_statistics(p: Any) -> str:
    """Return what does not go with statistics of features that every client releases before round 1."""
    a, schedule = p.algorithm, p.noise_schedule
    per_draw = isinstance(schedule, CalibratedNoise) and schedule.epsilon_per_draw
    moves = schedule.adaptive or schedule.reads_validation or schedule.spreads_budget
    return p.released_statistics and _first(
        {
            f"algorithm={a.name}": not a.releases_feature_statistics,
            "an attack": p.attack,
            "algorithm.clients_per_round": a.clients_per_round,
            "algorithm.shares of whole numbers": a.discrete,
            "algorithm.dropout": a.dropout,
            "a noise_schedule that is not fixed in advance": moves,
            "noise_schedule.epsilon_per_draw": per_draw,
            "budget_view=published": not p.settings.sound,
            "warm_start.records": p.settings.warm_start,
        }
    )


def _beside_publish(p: Any) -> str:
    """Return what does not go with a run that is given away."""
    return p.settings.publish and _first(
        {
            "a run without privacy": p.without_noise or p.unprotected,
            f"algorithm={p.algorithm.name}, whose search keeps its runs": p.algorithm.search,
            "paired: two runs with common noise have no finite epsilon": p.settings.paired,
            "an attack, which is a simulation": p.attack,
            "model.weights that are not declared public (model.weights_are_public=true)": (
                p.model.starting_point and not p.model.starting_point.publishable
            ),
        }
    )


def _labels_read(p: Any) -> str:
    """Return the labels that a run to be given away reads from its records."""
    table = p.dataset.without_features()
    if not p.settings.publish or not isinstance(table, OwnTable) or table.labels is not None:
        return ""
    return ", ".join(table.words)


def _spreads_users(p: Any) -> str:
    """Return the column of a table whose values the partition would spread over clients."""
    table, partition = p.dataset.without_features(), p.partition
    if not isinstance(table, OwnTable) or partition.by_user or is_own(partition):
        return ""
    if table.client:
        return f"dataset.client={table.client}"
    whole = isinstance(partition, Iid) and partition.stable  # deals out users by their coins
    return f"dataset.user={table.user}" if table.user and not whole else ""


def _beside_canaries(p: Any) -> str:
    """Return what does not go with canaries in the run itself."""
    a = p.algorithm
    single = "where the server sees uploads: audit the finished run with fedpriv audit epsilon RUN"
    return p.settings.canaries and _first(
        {
            "a run without privacy": p.without_noise,
            "an attack": p.attack,
            f"algorithm={a.name}, {single}": a.unit == "client" and a.trust.sees_each_upload,
            "warm_start.records=clients": "warm_start" in p.unprotected,
        }
    )


def _moving_clip_norm(p: Any) -> bool:
    """Return whether the clipper does not go with noise of the work by Naseri et al. as it is printed."""
    if not isinstance(p.algorithm, NaseriCdp | NaseriLdp) or p.algorithm.noise != PRINTED:
        return False
    if p.algorithm.unit == "client":  # an answer would be divided by a number that nobody noises
        return bool(p.clipper.asks_ever())
    return not isinstance(p.clipper, ConstantClipper)  # the noise does not scale with the clip norm


def _unread(p: Any) -> str:
    """Return what the data set holds, if the model reads something else."""
    task = None if p.dataset.vocabulary_size is None else p.dataset.task
    if p.model.task in (task, ANY_TASK):
        return ""
    return "numbers" if task is None else f"texts for the task {task}"


def _images_only(p: Any) -> bool:
    """Return whether the model does not read images that are larger than the crop."""
    copies, shape = p.algorithm.augmentation, p.dataset.input_shape
    no_images = p.dataset.features_name or p.dataset.vocabulary_size or len(shape) != 3
    return copies and (no_images or copies.crop >= min(shape[1:]))


def _by_upload(p: Any) -> bool:
    """Return whether the server sees each upload."""
    return not p.algorithm.private or p.algorithm.trust.sees_each_upload


def _hidden(p: Any) -> str:
    """Return the knowledge of attackers that the trust model hides."""
    return ", ".join(p.attack.hidden(p.algorithm)) if p.attack else ""


def _blind(p: Any) -> bool:
    """Return whether attackers noise their uploads, and so send them before those that they are to see."""
    attack = p.attack
    if attack is None or not attack.whole_round or attack.dp_steps != FOLLOW or not attack.knows:
        return False
    told = NOISED_UPLOADS in attack.knows and RAW_UPLOADS not in attack.knows
    return told and p.private and p.algorithm.unit == "client"


def _replaces_in_vain(p: Any) -> bool:
    """Return whether attackers want to replace the model where an upload has no weight of its own."""
    steps = p.algorithm.unit == "client" and p.algorithm.optimizer != "sgd"
    weightless = steps or (p.aggregation and not p.aggregation.linear)
    return isinstance(p.attack, Backdoor) and p.attack.boost == REPLACEMENT and weightless


def _other_facts(p: Any) -> str:
    """Return a fact of the partition of which the algorithm's theorem assumes another value."""
    for key, assumed in p.algorithm.assumed.items():
        fact = getattr(p.partition, key)
        if None not in (assumed, fact) and assumed != fact:
            return f"{key} must be {fact}, the value of partition.{key}, got {assumed}"
    return ""


TABLE = (
    Refusal(
        lambda p: (
            p.claim is None
            and (
                isinstance(p.accountant, PublishedAccountant)
                or (p.private and not p.settings.sound)
            )
        ),
        "budget_view must be sound with algorithm={a.name}, and accountant another: no theorem is about it",
    ),
    Refusal(
        lambda p: p.settings.publish and untested(p.dataset),
        "dataset needs read() and encode(rows) with publish=true: nothing tests the load() of "
        "{p.dataset.name}",
    ),
    Refusal(
        _labels_read,
        "dataset.labels must be given with publish=true, as no epsilon covers labels that are read from the "
        "records: 'dataset.labels=[{found}]'",
    ),
    Refusal(
        lambda p: p.settings.publish and " and ".join(p.split_by_count),
        "{found} must be another with publish=true: one more record would move others, and no epsilon covers "
        "that",
    ),
    Refusal(
        lambda p: (
            p.settings.publish
            and p.settings.publish_test_metrics
            and p.algorithm.unit == "client"
            and p.dataset.test_of_clients
        ),
        "publish_test_metrics must be false with algorithm={a.name} and dataset={p.dataset.name}, whose test "
        "records are those of protected clients",
    ),
    Refusal(
        _unread,
        "model must be one that reads {found} with dataset={p.dataset.name} (lstm_lm: texts)",
    ),
    Refusal(
        lambda p: p.reads_validation and not p.dataset.validation_records,
        "noise_schedule, aggregation or warm_start.records=public reads public validation records, and the "
        "data set has none: name them in dataset.validation_path, or declare a share public with "
        "dataset.validation_share=0.1 (validation_records, of a class of your own); noise_schedule=constant "
        "reads none, and noise_schedule=recalculated noise_schedule.trigger=noised (rounds of all records) "
        "asks the clients, which is charged",
    ),
    Refusal(
        _spreads_users,
        "{found} is for partition=natural; others spread these records over clients",
    ),
    Refusal(
        lambda p: (
            p.dataset.declared_records and p.algorithm.sampling_of(9) != p.algorithm.sampling_of(99)
        ),
        "dataset.records must be null with algorithm={a.name}, whose lots follow from a client's records; "
        "algorithm.sampling=poisson without max_lot_size goes with it",
    ),
    Refusal(
        lambda p: (
            not p.dataset.known
            and p.partition.stable
            and p.partition.seed not in (None, p.settings.seed)
        ),
        "partition.seed must be left out, got {p.partition.seed}: dataset.split_seed deals out files of your "
        "own",
    ),
    # ---- algorithm and clipper
    Refusal(
        lambda p: not p.private and (p.noise_schedule.adds_noise or not p.clipper.unbounded),
        "algorithm={a.name} is not private and takes clipper=none and noise_schedule=none; dp_fl, ldp_fedsgd "
        "and cdp_fedavg clip and add noise",
    ),
    Refusal(
        lambda p: p.algorithm.unit == "record" and p.algorithm.trust.secret_cohort,
        "algorithm={a.name}: unit=record does not go with {a.trust.name} trust",
    ),
    Refusal(
        _images_only,
        "algorithm.augmentation_multiplicity must be null unless the model reads images, no features, that "
        "are larger than algorithm.random_crop",
    ),
    Refusal(
        lambda p: (
            p.algorithm.search and (not p.noise_schedule.spread_evenly or p.clipper.asks_ever())
        ),
        "algorithm={a.name} takes noise_schedule=uniform_budget and a clipper that releases no statistic",
    ),
    Refusal(
        lambda p: p.algorithm.search and (p.settings.sound or p.settings.paired),
        "budget_view must be published, and paired null, with algorithm={a.name}: its search spends far more",
    ),
    Refusal(
        lambda p: (
            isinstance(p.algorithm, DpFtrl)
            and not isinstance(p.clipper, ConstantClipper | NoClipper)
        ),
        "algorithm={a.name} takes one clip norm fixed in advance (clipper=constant): it releases once",
    ),
    Refusal(_moving_clip_norm, "clipper must be constant with noise=as_printed"),
    Refusal(
        lambda p: p.private and p.clipper.unbounded and p.noise_schedule.adds_noise,
        "clipper=none leaves the sensitivity unbounded, so no noise makes it private; choose another, or "
        "noise_schedule=none with epsilon=null for a run without privacy",
    ),
    Refusal(
        _beside_statistics,
        "features.normalization must be groups, statistics or none with {found}, got released; every client "
        "releases statistics once, before the first round",
    ),
    Refusal(
        lambda p: (
            isinstance(p.noise_schedule, RecalculatedNoise)
            and p.noise_schedule.loop == "printed"
            and p.settings.epsilon is not None
        ),
        "epsilon must be null with noise_schedule.loop=printed, whose last round spends more; "
        "noise_schedule.epsilon is what its other rounds spend",
    ),
    Refusal(
        lambda p: p.noise_schedule.loss_query and not p.algorithm.trust.sees_each_upload,
        "noise_schedule asks clients for their losses, which algorithm.trust={a.trust.name} does not protect",
    ),
    Refusal(
        lambda p: p.private and not (p.noise_schedule.known or p.shares_known),
        "noise_schedule is calibrated to epsilon, which here depends on how many records a client has, and "
        "partition=natural does not say; set noise_schedule=constant, or another partition",
    ),
    Refusal(
        lambda p: (
            isinstance(p.noise_schedule, LargerCohort) and not hasattr(p.algorithm, "client_rate")
        ),
        "noise_schedule must be another with algorithm={a.name}, which samples no clients by client_rate",
    ),
    # ---- aggregation and attack
    Refusal(
        lambda p: p.aggregation and p.aggregation.buckets is None and not _by_upload(p),
        "aggregation must be mean or bucketed_median with algorithm={a.name} ({a.trust.name} trust): a rule "
        "on uploads without noise has no bounded sensitivity",
    ),
    Refusal(
        lambda p: p.aggregation and p.aggregation.buckets is not None and _by_upload(p),
        "aggregation must be a rule on uploads, such as median or trimmed_mean, with algorithm={a.name}",
    ),
    Refusal(
        lambda p: p.aggregation and not (_by_upload(p) or p.algorithm.sums_by_bucket),
        "aggregation must be mean with algorithm={a.name}: it has no fresh sum over a public denominator",
    ),
    Refusal(
        lambda p: (
            p.algorithm.server
            and p.algorithm.server.name == "dp_adam_bc"
            and (p.aggregation or (p.attack and p.attack.sends_after_release(p.algorithm)))
        ),
        "algorithm.optimizer must be another with this aggregation or attack, got dp_adam_bc; it corrects "
        "for the noise of the mean",
    ),
    Refusal(
        lambda p: p.attack and p.algorithm.trust.sees_only_a_sum,
        "attack must be none with algorithm.trust={a.trust.name}, got {p.attack.option}",
    ),
    Refusal(
        lambda p: (
            p.attack and p.algorithm.augmentation and (p.attack.trigger or p.attack.flips_labels)
        ),
        "attack must be none with algorithm.augmentation_multiplicity, got {p.attack.option}",
    ),
    Refusal(
        lambda p: (
            p.attack
            and not p.algorithm.uploads_changes
            and (p.attack.trigger or p.algorithm.unit == "record")
        ),
        "attack must be another with algorithm={a.name}, whose clients send no changes of weights, got "
        "{p.attack.option}; attacks without a trigger, such as alie, go with fedsgd and ldp_fedsgd",
    ),
    Refusal(
        lambda p: p.attack and sorted({*p.attack.needs} - {*p.attack.knowledge(p.algorithm)}),
        "attack.knows must be a list with {found[0]}: attack={p.attack.option} cannot be made without",
    ),
    Refusal(
        lambda p: (
            (p.algorithm.unit == "record" and _hidden(p))
            or (NOISED_UPLOADS in _hidden(p) and NOISED_UPLOADS)
        ),
        "attack.knows must be a list without {found}: algorithm={a.name} has no such uploads",
    ),
    Refusal(
        lambda p: not (p.attack and p.attack.omniscient) and _hidden(p),
        "attack.knows must be null or a list without {found}, which {a.trust.name} trust hides; "
        "attack.omniscient=true lets attackers see it, and then no finite sound ε holds",
    ),
    Refusal(
        _blind,
        "attack.dp_steps must be skip with these attack.knows, got follow: who noises has not seen others",
    ),
    Refusal(
        _replaces_in_vain,
        "attack.boost must be a number with this aggregation or algorithm.optimizer, got replacement",
    ),
    Refusal(
        lambda p: p.attack and p.attack.trigger and p.attack.trigger.misfit(p.dataset),
        "attack.trigger needs {found}, which dataset={p.dataset.name} does not have",
    ),
    Refusal(
        lambda p: p.attack and p.settings.shadow,
        "shadow must be null with an attack, whose clients are no one's",
    ),
    # ---- other root keys
    Refusal(
        lambda p: not p.private and p.settings.epsilon is not None,
        "epsilon must be null with algorithm={a.name} (no privacy), got {s.epsilon:g}",
    ),
    Refusal(
        lambda p: p.settings.sound and p.settings.epsilon is not None and ", ".join(p.unprotected),
        "epsilon must be null, got {s.epsilon:g}: {found} is released without noise, in no sound budget",
    ),
    Refusal(
        lambda p: p.settings.epsilon is None and p.settings.rounds is None,
        "rounds must be given when epsilon is null: one of them ends the run, got null",
    ),
    Refusal(_beside_canaries, "audit must be without epsilon with {found}"),
    Refusal(_beside_publish, "publish must be false with {found}"),
    Refusal(
        lambda p: not p.settings.runtime.diagnostics and ", ".join(p.trackers),
        "tracker must be none with publish=true or runtime.diagnostics=false, got {found}; trackers tell how "
        "long a round took, and so how many took part",
    ),
    Refusal(_other_facts, "algorithm.{found}"),
)


def refuse_combinations(parts: Parts) -> None:
    """Raise ConfigError for the first thing that does not go together.

    The accountant comes last: it asks what is released, for which the other parts must fit.
    """
    algorithm, settings = parts.algorithm, parts.settings
    rule, attack, clients = parts.aggregation, parts.attack, parts.partition.clients
    for refusal in TABLE:
        if found := refusal.when(parts):
            names = {"p": parts, "a": algorithm, "s": settings, "found": found}
            raise ConfigError(refusal.message.format(**names))
    parts.model.refuse_misfit(parts.dataset.input_shape, parts.dataset.classes)
    if clients:
        within_group("algorithm", lambda: algorithm.check_clients(clients))
        cohort = min(algorithm.clients_per_round or clients, clients)
        if rule is not None and rule.buckets is None:
            within_group("aggregation", lambda: rule.check_cohort(cohort))
        if attack is not None:
            within_group("attack", lambda: attack.attackers_among(clients))
    if (rounds := settings.rounds) is not None:
        within_group("algorithm", lambda: algorithm.check_rounds(rounds))
    if settings.canaries:
        refuse_canaries(parts, "audit=epsilon:M:KIND, KIND", settings.canary)
    if parts.private and not isinstance(parts.accountant, PublishedAccountant):
        _refuse_accountant(parts)


def _refuse_accountant(parts: Parts) -> None:
    """Refuse releases without a known cost, and adaptive noise where the accountant has no filter."""
    algorithm, settings, accountant = parts.algorithm, parts.settings, parts.accountant
    guarded = settings.sound and settings.epsilon is not None and parts.adaptive
    sampling = algorithm.sampling_of(1000)
    release = parts.release_of(sampling)
    if settings.sound:
        event, neighbours, subject = release.event()[0], sampling.neighbours, "releases"
        able = [
            other.name
            for other in parts.other_accountants
            if not other.supports(event, neighbours) and (other.has_filter or not guarded)
        ]
    else:
        assert parts.claim is not None  # else the table refuses
        event, neighbours = parts.claim.event(release.upload.joint), parts.claim.neighbours
        subject, able = "is charged for in the published view", ["published"]
    if obstacle := accountant.supports(event, neighbours):
        remedy = f"use accountant={able[0]}" if able else "no accountant can while the noise adapts"
        raise ConfigError(
            f"accountant={accountant.name} does not fit what algorithm={algorithm.name} {subject}: "
            f"{obstacle}; {remedy}"
        )
    if guarded and not accountant.has_filter:
        raise ConfigError(
            f"accountant={accountant.name} has no privacy filter, which a noise multiplier that adapts to "
            "released values needs; use accountant=rdp, or a schedule fixed in advance "
            "(noise_schedule=constant, exponential, step)"
        )


def refuse_canaries(parts: Parts, key: str, kind: str | None) -> None:
    """Raise ConfigError for parts in which no canaries can be planted.

    Args:
        parts: The parts of the run that is audited.
        key: The key, or option, by which the kind of canaries was chosen.
        kind: The kind; None if it is not known yet.
    """
    algorithm, dataset = parts.algorithm, parts.dataset
    sums_of_records = algorithm.unit == "record" and not algorithm.row_per_client
    if algorithm.trust.sees_only_a_sum or sums_of_records:
        raise ConfigError(
            f"an audit of epsilon does not go with algorithm={algorithm.name} and algorithm.trust="
            f"{algorithm.trust.name}: its canaries are read off the upload of a client, or off a sum with "
            "further clients, and here is one sum of those announced"
        )
    if parts.released_statistics is not None:
        raise ConfigError(NO_STATISTICS)
    if kind == DIRECTION and algorithm.augmentation is not None:
        allowed = f"{MISLABELLED} with algorithm.augmentation_multiplicity"
        raise ConfigError(key, kind, allowed, "the others are found by a pixel, which flips move")
    if kind == MISLABELLED:
        replaced = algorithm.sampling_of(parts.even_share).neighbours == REPLACE_ONE
        if dataset.task != CLASSIFICATION or dataset.classes < (3 if replaced else 2):
            hint = (
                "its records have no label that could be wrong, or no two for replace-one adjacency"
            )
            raise ConfigError(key, kind, f"{DIRECTION} with dataset={dataset.name}", hint)
