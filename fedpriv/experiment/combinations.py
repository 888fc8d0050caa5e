"""Combinations of groups that cannot run, refused before anything does."""

from __future__ import annotations

from fedpriv.algorithms.distributed import DpFlServer
from fedpriv.algorithms.dp_fl import DpFl
from fedpriv.algorithms.naseri import NaseriCdp
from fedpriv.algorithms.sum_of_uploads import CONTINUOUS
from fedpriv.attacks.backdoor import REPLACEMENT
from fedpriv.common.errors import ConfigError, show
from fedpriv.common.groups import option_of
from fedpriv.experiment.aggregation_rules import refuse_uncombinable
from fedpriv.experiment.canary_rules import refuse_canaries
from fedpriv.experiment.contracts import refuse_without_validation
from fedpriv.experiment.instantiate import within_group
from fedpriv.experiment.parts import Parts
from fedpriv.features.base import RELEASED
from fedpriv.models.fit import refuse_misfit
from fedpriv.privacy.accountants import PldAccountant, RdpAccountant
from fedpriv.privacy.core.names import PUBLISHED, SOUND
from fedpriv.privacy.noise_schedules import NoNoise, UniformBudget

_PRIVATE = {"record": "dp_fl", "client": "ldp_fedsgd or cdp_fedavg"}


def refuse_bad_combinations(parts: Parts) -> None:
    """Raise ConfigError for groups that do not go together."""
    refuse_misfit(parts.model, parts.dataset)
    refuse_without_validation(parts.dataset, parts.noise_schedule)
    _refuse_half_a_privacy(parts)
    _refuse_misclipped(parts)
    _refuse_unaugmentable(parts)
    _refuse_two_budgets(parts)
    _refuse_with_shares(parts)
    _refuse_released_statistics(parts)
    _refuse_unsearchable(parts)
    refuse_uncombinable(parts)
    _refuse_unattackable(parts)
    if parts.settings.canaries:
        refuse_canaries(parts)
    _refuse_tracking(parts)
    _refuse_clashing_settings(parts)
    _refuse_unpublishable(parts)
    _refuse_endless(parts)
    _refuse_other_clients(parts)


def _refuse_half_a_privacy(parts: Parts) -> None:
    """Raise ConfigError for noise or a budget where nothing is private, and for noise of no bounded query."""
    settings, algorithm = parts.settings, parts.algorithm
    clips, noises = not parts.clipper.unbounded, not isinstance(parts.noise_schedule, NoNoise)
    if not algorithm.private:
        if clips or noises:
            raise ConfigError(
                f"algorithm={algorithm.name} is not private and takes clipper=none and "
                f"noise_schedule=none; use algorithm={_PRIVATE[algorithm.unit]} to clip and add noise"
            )
        if settings.epsilon is not None:
            raise ConfigError(
                "epsilon", settings.epsilon, f"null with algorithm={algorithm.name} (no privacy)"
            )
    elif not clips and noises:
        raise ConfigError(
            "clipper=none leaves the sensitivity unbounded, so no noise makes it private; choose "
            "another clipper, or noise_schedule=none with epsilon=null for a run without privacy"
        )
    if algorithm.private and settings.epsilon is not None and settings.budget_view == SOUND:
        for key, value in parts.unprotected.items():
            raise ConfigError(
                f"dataset.{key}",
                value,
                "another with budget_view=sound and an epsilon",
                "it is a release without noise, which no budget allows: take epsilon=null or "
                "budget_view=published",
            )


def _refuse_misclipped(parts: Parts) -> None:
    """Raise ConfigError where an algorithm's unit or projection is not what trust or clipper take."""
    algorithm = parts.algorithm
    if algorithm.unit == "record" and algorithm.trust.secret_cohort:
        raise ConfigError(
            f"algorithm={algorithm.name}: unit=record does not go with {algorithm.trust.name} trust: each "
            "client noises its own sum here, and who took part is seen"
        )
    if parts.clipper.transforms and isinstance(algorithm, NaseriCdp):
        raise ConfigError(
            "clipper",
            option_of("clipper", parts.clipper),
            f"one that does not scale coordinates with algorithm={algorithm.name}",
            "its clients project onto a ball of the clip norm",
        )


def _refuse_clashing_settings(parts: Parts) -> None:
    """Raise ConfigError for root keys that exclude each other."""
    settings, algorithm = parts.settings, parts.algorithm
    if settings.paired is not None and (settings.publish or algorithm.search is not None):
        other = "publish=true" if settings.publish else f"algorithm={algorithm.name}"
        hint = "runs with common noise are simulations: two that are seen have no finite epsilon"
        raise ConfigError("paired", settings.paired, f"null with {other}", hint)
    if settings.isolate_records and settings.runtime.engine != "auto":
        hint = "other engines compute records together"
        raise ConfigError(
            "runtime.engine", settings.runtime.engine, "auto with isolate_records=true", hint
        )


def _refuse_endless(parts: Parts) -> None:
    """Raise ConfigError where nothing ends the run, or it ends before the algorithm has begun."""
    settings = parts.settings
    if settings.epsilon is None and settings.rounds is None:
        raise ConfigError("rounds", None, "given when epsilon is null: one of them ends the run")
    if (rounds := settings.rounds) is not None:
        within_group("algorithm", lambda: parts.algorithm.check_rounds(rounds))


def _refuse_other_clients(parts: Parts) -> None:
    """Raise ConfigError where the algorithm counts on other clients than the partition makes."""
    algorithm = parts.algorithm
    if clients := parts.partition.clients:
        within_group("algorithm", lambda: algorithm.check_clients(clients))
    for key, assumed in algorithm.assumed.items():
        true = getattr(parts.partition, key, None)
        if true is not None and true != assumed:
            raise ConfigError(
                f"algorithm.{key}",
                assumed,
                f"{true}, which partition.{key} is",
                f"set partition.{key} alone",
            )


_COPIES = "algorithm.augmentation_multiplicity"


def _refuse_unaugmentable(parts: Parts) -> None:
    """Copies are of images, which nobody else looks for pixels in, and clipped as they are."""
    dataset, augmentation = parts.dataset, parts.algorithm.augmentation
    if augmentation is None:
        return
    if (features := dataset.features_name) is not None:
        hint = "flips and crops need images, which such features are not"
        raise ConfigError("features", features, f"none with {_COPIES}", hint)
    shape = tuple(dataset.input_shape)
    if len(shape) != 3 or dataset.vocabulary_size is not None:
        hint = "its records are no images of channels, height and width"
        allowed = f"null with dataset={dataset.name}"
        raise ConfigError(_COPIES, augmentation.multiplicity, allowed, hint)
    if augmentation.crop >= min(shape[1:]):
        allowed = f"< {min(shape[1:])}, the pixels of an image of dataset={dataset.name}"
        raise ConfigError("algorithm.random_crop", augmentation.crop, allowed)
    if parts.clipper.transforms:
        name, hint = (
            option_of("clipper", parts.clipper),
            "its coordinates are scaled record by record",
        )
        allowed = f"one that does not scale coordinates with {_COPIES}"
        raise ConfigError("clipper", name, allowed, hint)
    if parts.attack is not None:
        name = option_of("attack", parts.attack.trigger)
        hint = (
            "its trigger would be moved with the images"
            if name == "pixel_pattern"
            else "copies of attackers' records are not supported"
        )
        raise ConfigError("attack", name, f"none with {_COPIES}", hint)


def _refuse_unpublishable(parts: Parts) -> None:
    """A run whose results are given away is private, stands alone, and is made once."""
    algorithm = parts.algorithm
    if not parts.settings.publish:
        if parts.settings.publish_test_metrics:
            raise ConfigError("publish_test_metrics", True, "false unless publish=true")
        return
    if not algorithm.private or isinstance(parts.noise_schedule, NoNoise) or parts.unprotected:
        raise ConfigError(
            "publish", True, "false for a run without privacy", "nothing of it may be given away"
        )
    if parts.settings.runtime.reuse:
        raise ConfigError(
            "runtime.reuse",
            True,
            "false with publish=true",
            "each such run has secrets of its own, so none stands for another; figures, which find runs by "
            "their configuration, cannot have them",
        )
    if algorithm.search is not None:
        raise ConfigError(
            "publish", True, f"false with algorithm={algorithm.name}, whose search keeps its runs"
        )
    if parts.attack is not None:
        raise ConfigError("publish", True, "false with an attack, which is a simulation")


def _refuse_tracking(parts: Parts) -> None:
    """A tracker gives away what it gets, and many the time of each round as well."""
    names = ", ".join(parts.trackers)
    if names and parts.settings.publish:
        hint = "of such a run only public/ may be given away, once it has ended"
        raise ConfigError("tracker", names, "none with publish=true", hint)
    telling = any(tracker.notes_times for tracker in parts.trackers.values())
    if telling and not parts.settings.runtime.diagnostics:
        raise ConfigError(
            "tracker",
            names,
            "none or csv with runtime.diagnostics=false",
            "others note when a round ended, and how long it took tells how many took part",
        )


def _refuse_with_shares(parts: Parts) -> None:
    """With shares of noise a round has as many clients as were announced, and only their sum is seen."""
    algorithm = parts.algorithm
    if not algorithm.trust.noised_by_clients or algorithm.trust.sees_each_upload:
        return
    hint = f"with algorithm.trust={algorithm.trust.name} a round has no other clients than those announced"
    if parts.attack is not None:
        raise ConfigError("attack", option_of("attack", parts.attack.trigger), "none", hint)
    if parts.noise_schedule.loss_query is not None:
        raise ConfigError(
            f"noise_schedule asks the clients of a round for their losses, which algorithm.trust="
            f"{algorithm.trust.name} adds no shares for; take a schedule that asks nothing"
        )


def _refuse_released_statistics(parts: Parts) -> None:
    """What one sum of all clients, fixed in advance, is not enough for."""
    if parts.released_statistics is None:
        return
    algorithm, schedule = parts.algorithm, parts.noise_schedule
    if not isinstance(algorithm, DpFlServer | DpFl):
        raise ConfigError(
            "features.normalization",
            RELEASED,
            f"groups, statistics or none with algorithm={algorithm.name}",
            "the clients of dp_fl_server and dp_fl release statistics of features",
        )
    hint = "with features.normalization=released every client releases once, before the first round"
    for key, value, free in (
        ("budget_view", parts.settings.budget_view, SOUND),
        ("algorithm.shares", getattr(algorithm, "shares", CONTINUOUS), CONTINUOUS),
        ("algorithm.clients_per_round", algorithm.clients_per_round, None),
        ("algorithm.dropout", getattr(algorithm, "dropout", 0), 0),
    ):
        if value != free:
            raise ConfigError(key, value, show(free), hint)
    if parts.attack is not None:
        raise ConfigError("attack", option_of("attack", parts.attack.trigger), "none", hint)
    if schedule.adaptive or schedule.reads_validation or isinstance(schedule, UniformBudget):
        raise ConfigError(
            f"noise_schedule={option_of('noise_schedule', schedule)} does not go with features.normalization="
            "released, whose release is counted with noise that is fixed in advance; take constant, "
            "calibrated, exponential or step"
        )
    if (per_draw := getattr(schedule, "epsilon_per_draw", None)) is not None:
        raise ConfigError("noise_schedule.epsilon_per_draw", per_draw, "null", hint)


def _refuse_two_budgets(parts: Parts) -> None:
    """A budget to enforce and another one to spread noise from: one of them would be for nothing."""
    schedule, enforced = parts.noise_schedule, parts.settings.epsilon
    if not isinstance(schedule, UniformBudget) or enforced in (None, schedule.epsilon):
        return
    raise ConfigError(
        "noise_schedule.epsilon",
        schedule.epsilon,
        f"epsilon, {enforced:g}",
        "set epsilon alone, for noise is spread from the budget that is enforced",
    )


def _refuse_unattackable(parts: Parts) -> None:
    """Attackers send changes of weights, and a trigger is for one kind of data."""
    algorithm, attack = parts.algorithm, parts.attack
    if attack is None:
        return
    if parts.settings.shadow is not None:
        raise ConfigError("shadow", "a half", "null with an attack, whose clients are no one's")
    if not algorithm.uploads_changes:
        raise ConfigError(
            f"attack must be none with algorithm={algorithm.name}: its clients do not send changes of "
            "weights; those of all others but fedsgd and ldp_fedsgd do"
        )
    steps_itself = algorithm.unit == "client" and getattr(algorithm, "optimizer", "sgd") != "sgd"
    if attack.boost == REPLACEMENT and steps_itself:
        raise ConfigError(
            "attack.boost", REPLACEMENT, "a number", "the server's optimizer is not sgd"
        )
    images = parts.dataset.without_features()
    if attack.trigger.misfit(parts.dataset) and not attack.trigger.misfit(images):
        hint = f"attack={option_of('attack', attack.trigger)} changes pixels"
        raise ConfigError("features", parts.dataset.features_name, "none with this attack", hint)
    if wanted := attack.trigger.misfit(parts.dataset):
        raise ConfigError(
            f"attack.trigger needs {wanted}, which dataset={parts.dataset.name} has not"
        )
    if clients := parts.partition.clients:
        within_group("attack", lambda: attack.attackers_among(clients))


def _refuse_unsearchable(parts: Parts) -> None:
    """A search runs the same data many times over: an oracle, which only the published view allows."""
    if parts.algorithm.search is None:
        return
    if parts.settings.budget_view != PUBLISHED:
        raise ConfigError(
            "budget_view",
            parts.settings.budget_view,
            f"published with algorithm={parts.algorithm.name}",
            "the runs that search T spend the budget many times over, which a sound view cannot allow",
        )
    if type(parts.noise_schedule) is not UniformBudget or parts.clipper.asks_ever():
        raise ConfigError(
            f"algorithm={parts.algorithm.name} takes noise_schedule=uniform_budget and a clipper that asks "
            "nothing (constant, poly, automatic)"
        )


def _some_sigma(parts: Parts) -> float:
    """A noise multiplier the run may use: the first, or any where it is not known yet."""
    if not parts.noise_schedule.known:
        return min(1.0, parts.clipper.largest_noise_multiplier / 2.0)
    return parts.noise_schedule.noise_multiplier(0)


def refuse_unaccountable(parts: Parts) -> None:
    """The accountant must know what the enforced view charges, under its neighbours."""
    sampling = parts.algorithm.sampling_of(1000)
    sigma = _some_sigma(parts)
    group = within_group("clipper", lambda: parts.mechanism.group(sampling, sigma, 0))
    sound = parts.settings.budget_view == SOUND
    guarded = sound and parts.settings.epsilon is not None
    if sound:
        event, neighbours, what = group.event()[0], sampling.neighbours, "releases"
        able = [
            a.name
            for a in (PldAccountant(), RdpAccountant())
            if not a.supports(event, neighbours)
            and (a.has_filter or not (parts.adaptive and guarded))
        ]
    else:
        claim, able, what = (
            parts.algorithm.claim,
            [PUBLISHED],
            "is charged for in the published view",
        )
        assert claim is not None  # a published view without a theorem is refused
        event, neighbours = claim.event(group.upload.joint), claim.neighbours
    if reason := parts.accountant.supports(event, neighbours):
        raise ConfigError(
            f"accountant={parts.accountant.name} does not fit what "
            f"algorithm={parts.algorithm.name} {what}: {reason}; "
            + (
                f"accountant={able[0]} does"
                if able
                else "no accountant does while the noise adapts"
            )
        )
    if parts.adaptive and guarded and not parts.accountant.has_filter:
        raise ConfigError(
            f"accountant={parts.accountant.name} has no privacy filter, which a noise multiplier "
            "that adapts to released values needs; use accountant=rdp, or a schedule fixed in "
            "advance (noise_schedule=constant, exponential, step)"
        )


def refuse_query_of_secret_cohort(parts: Parts) -> None:
    """The mean over a cohort, and the noise on it, would tell how many took part."""
    if parts.algorithm.trust.secret_cohort and parts.noise_schedule.loss_query is not None:
        raise ConfigError(
            f"noise_schedule asks the clients of a round for their losses, and with algorithm="
            f"{parts.algorithm.name} who takes part is secret; take a schedule that asks nothing"
        )
