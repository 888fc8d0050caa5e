"""Tests of what left against what is charged: names of values, ε of the claimed noise, ε from below."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.tools.adapters.claim import AdapterClaim
from fedpriv.tools.adapters.noise import NoiseRuns, contrasts
from fedpriv.tools.adapters.process import RoundRaised
from fedpriv.tools.adapters.subject import AdapterSubject, RoundSeen
from fedpriv.tools.audit.epsilon_guesses import Scores
from fedpriv.tools.audit.epsilon_independent import bound
from fedpriv.tools.verify import statistics
from fedpriv.tools.verify.table import Check

SIGNIFICANCE = 1e-4
"""Probability that ε from below is wrong, beside the level of the other checks."""
_MOST_ROUNDS = 64
_TRIALS = 250  # runs with the canary, and as many without it
_CALLS = 4000
_HUGE = 1e6
_DELTA = 1e-5
_TOLERANCE = 1.01
_SEEDS, _LARGE_ROUNDS = 20, 6  # of runs with large updates
_ROUNDING = 1e-4  # of code in single precision


def checks(noise_runs: NoiseRuns) -> Iterator[Check]:
    """Yield the checks of what leaves over all rounds, and of the claimed ε."""
    subject = noise_runs.subject
    claim = subject.claim
    rounds = min(claim.rounds, _MOST_ROUNDS)
    run = subject.run(subject.new_seed(), [subject.ordinary()] * rounds)
    for t, seen in enumerate(run):
        subject.steady(seen, t + 1)
    expected = {*claim.values, *claim.public}
    more = sorted({name for seen in run for name in seen.values} - expected)
    fewer = sorted({name for seen in run for name in claim.values if name not in seen.values})
    plural = "s" if rounds > 1 else ""
    yield Check(
        "charge", f"what leaves in {rounds} round{plural}", ", ".join(more) or "what is claimed",
        "what is claimed", passed=not more,
        note=f"the claim neither charges {', '.join(more)} nor names it as public (parts that are clipped "
        "together, such as layers, are one value: return them in one array)",
    )  # fmt: skip
    if fewer:
        yield Check(
            "charge", "what is claimed", f"{', '.join(fewer)} does not leave", "leaves", passed=False,
            note=f"{', '.join(fewer)} is claimed, and does not leave in every round",
        )  # fmt: skip
    yield from _public(noise_runs, run)
    yield from _charged_noise(claim, run)
    yield from _after_large(noise_runs)
    yield from _epsilon(subject)


def _public(noise_runs: NoiseRuns, ordinary: list[RoundSeen]) -> Iterator[Check]:
    """Test that values claimed to be public are the same with other data and other noise."""
    subject = noise_runs.subject
    for name in subject.claim.public:
        different = 0
        for t, reference in enumerate(ordinary[: subject.rounds]):
            first = reference.values.get(name)
            for run in noise_runs.runs[:20]:
                other = run[t].values.get(name)
                same = first is not None and other is not None and np.array_equal(first, other)
                different += not same
        yield Check(
            "outside", f"{name}, which is claimed to be public", f"{different} rounds differ", "0",
            passed=different == 0, note=f"{name} changes with the data or the seed",
        )  # fmt: skip


def _charged_noise(claim: AdapterClaim, run: list[RoundSeen]) -> Iterator[Check]:
    """Test that no round is charged with a smaller noise multiplier than ε is computed of."""
    for name, value in claim.values.items():
        least = min(seen.charged[name].noise_multiplier for seen in run)
        if any(seen.charged[name] != value for seen in run):
            yield Check(
                "charge", f"{name}: least noise multiplier of {len(run)} rounds", f"{least:.4g}",
                f"at least {value.noise_multiplier:.4g}", passed=least >= value.noise_multiplier / _TOLERANCE,
                note=f"charged(state) gives {name} the noise multiplier {least:.4g}, less than that of the "
                "claim",
            )  # fmt: skip


def _after_large(noise_runs: NoiseRuns) -> Iterator[Check]:
    """Test that what is charged in later rounds, and their noise, follow from what left before.

    All units send 10, or 40, clip norms in one direction. Both are clipped to the same, so that the same
    leaves; what differs afterwards follows from the data.
    """
    subject = noise_runs.subject
    claim = subject.claim
    if claim.rounds < 2:
        return
    if not subject.can_repeat:
        if any(seen.charged != claim.values for run in noise_runs.runs for seen in run):
            reason = "skipped: the seed cannot be held still"
            yield Check("charge", "what is charged in later rounds", reason, "-")
        return
    rounds, direction = min(claim.rounds, _LARGE_ROUNDS), subject.direction()
    name = f"what is charged in round{'s 2 to' if rounds > 2 else ''} {rounds}"
    seeds = [subject.new_seed() for _ in range(_SEEDS)]
    worlds = []
    for length in (10.0, 40.0):
        data = [
            np.broadcast_to(length * subject.clip_norm * direction, quiet.shape).copy()
            for quiet in subject.quiet
        ]
        worlds.append([data] * (rounds - 1) + [subject.quiet])
    answers = subject.runs([(seed, world) for seed in seeds for world in worlds])
    runs = [a for a in answers if not isinstance(a, RoundRaised)]
    if len(runs) < len(answers):
        yield Check("charge", name, "skipped: a round stops", "-")
        return
    first, second = runs[::2], runs[1::2]
    same = [pair for a, b in zip(first, second, strict=True) for pair in _after_the_same(a, b)]
    moves = any(seen.charged != run[0].charged for run in runs for seen in run)
    differ = sum(_charged_apart(a, b) for a, b in same)
    if moves and not same:
        yield Check("charge", name, "skipped: round 1 leaves other values", "-")
    elif moves:
        yield Check(
            "charge", name, f"differs in {differ} of {len(same)}", "0",
            passed=differ == 0,
            note="the rounds before left the same, but with longer updates, which are clipped alike, "
            "charged(state) is different: it depends on the data, and that is not charged",
        )  # fmt: skip
    for name, value in first[0][1].values.items():
        upload = name in claim.values and value.shape[-1:] == (claim.size,) and claim.size > 1
        if upload and noise_runs.standardised(name).any():
            yield _noise_after(noise_runs, name, [run[-1] for run in first], direction)


def _after_the_same(
    first: list[RoundSeen], second: list[RoundSeen]
) -> list[tuple[RoundSeen, RoundSeen]]:
    """Return the rounds of two runs before which both left the same."""
    pairs = list(zip(first, second, strict=True))
    count = next((t for t, (a, b) in enumerate(pairs) if not _alike(a, b)), len(pairs) - 1)
    return pairs[1 : count + 1]


def _alike(first: RoundSeen, second: RoundSeen) -> bool:
    """Return whether two rounds left the same values, up to rounding."""
    return first.values.keys() == second.values.keys() and all(
        a.shape == second.values[name].shape
        and np.allclose(
            a, second.values[name], rtol=1e-5, atol=1e-5 * float(np.abs(a).max(initial=0))
        )
        for name, a in first.values.items()
    )


def _charged_apart(first: RoundSeen, second: RoundSeen) -> bool:
    pairs = [(value, second.charged[name]) for name, value in first.charged.items()]
    return any(
        not np.isclose(getattr(a, key), getattr(b, key), rtol=_ROUNDING)
        for a, b in pairs
        for key in ("clip_norm", "noise_multiplier", "denominator")
    )


def _noise_after(
    noise_runs: NoiseRuns, name: str, rounds: list[RoundSeen], direction: np.ndarray
) -> Check:
    """Test the level of the noise in a round after large updates, but along them.

    Clients may keep what was clipped for the next round, which is then along the same direction.
    """
    size = noise_runs.subject.claim.size
    rows = np.stack([seen.rows(name, size) for seen in rounds])
    stds = np.array([seen.charged[name].std for seen in rounds])
    across = np.linalg.qr(np.column_stack([direction, np.eye(size)[:, 1:]]))[0][:, 1:]
    values, usual = contrasts(rows @ across, stds), noise_runs.standardised(name)[1]
    ratio, p = statistics.compared_spreads(values, usual)
    return Check(
        "noise", f"{name}: after rounds of large updates", f"{ratio:.4f} ({values.size:,} numbers)", "1", p,
        note=f"after rounds of large updates, the noise of {name} has {ratio:.4g} times the standard "
        "deviation that it has after small ones, measured by what is charged: it depends on the data of "
        "rounds before, or charged(state) is missing",
    )  # fmt: skip


def claimed_epsilon(subject: AdapterSubject) -> tuple[float | None, float]:
    """Return the claimed ε, or ε of the claimed noise where none is claimed, and δ."""
    claim = subject.claim
    delta = claim.delta or _DELTA
    return claim.epsilon or claim.computed_epsilon(delta, claim.rounds), delta


def _epsilon(subject: AdapterSubject) -> Iterator[Check]:
    """Compare the claimed ε with that of the claimed noise."""
    claim = subject.claim
    delta = claim.delta or _DELTA
    computed = claim.computed_epsilon(delta, claim.rounds)
    name = f"ε of the claimed noise, {claim.rounds} rounds, δ = {delta:g}"
    if computed is None:
        reason = f"skipped: no accountant for {claim.sampling}, {claim.neighbours}"
        yield Check("charge", name, reason, "-")
    elif claim.epsilon is None:
        yield Check("charge", name, f"{computed:.4g}", "-")
    else:
        yield Check(
            "charge", name, f"{computed:.4g}", f"at most {claim.epsilon:.4g}",
            passed=computed <= claim.epsilon * _TOLERANCE,
            note=f"the noise multiplier that is claimed gives ε = {computed:.4g} after {claim.rounds} rounds "
            f"at δ = {delta:g}; ε = {claim.epsilon:.4g} is claimed",
        )  # fmt: skip


def audit(noise_runs: NoiseRuns) -> Iterator[Check]:
    """Bound ε from below: tell runs with a huge unit from runs with an opposite or almost no upload."""
    subject = noise_runs.subject
    epsilon, delta = claimed_epsilon(subject)
    sizes = [n for n in noise_runs.names() if _has_uploads(noise_runs, n)]
    if not sizes or epsilon is None:
        yield Check("charge", "ε from below", "skipped: nothing to compare with", "-")
        return
    rounds = max(1, min(subject.claim.rounds, _CALLS // (2 * _TRIALS)))
    direction, unit = subject.direction(), subject.claim.units - 1
    canary = _HUGE * subject.clip_norm * direction
    other = -canary if subject.claim.neighbours == REPLACE_ONE else subject.quiet_vector
    data = [subject.set_unit(subject.quiet, unit, vector) for vector in (other, canary)]
    included = np.arange(2 * _TRIALS) % 2 == 1
    runs = subject.all_runs(
        [(subject.new_seed(), [data[i]] * rounds) for i in included.astype(int)]
    )
    sign = np.sign(subject.claim.values[sizes[0]].denominator)
    values = [
        sign
        * sum(
            float(seen.rows(sizes[0], subject.claim.size).sum(axis=0) @ direction)
            / seen.charged[sizes[0]].sensitivity
            for seen in run
        )
        for run in runs
    ]
    scores = Scores(np.nan_to_num(np.array(values), nan=1e300), included)
    lowest = bound(scores, delta, SIGNIFICANCE, None, subject.seed)
    yield Check(
        "charge", f"ε from below, {2 * _TRIALS} runs of {rounds} rounds", f"{lowest:.3g}",
        f"at most {epsilon:.4g}", passed=lowest <= epsilon,
        note=f"runs with one {subject.claim.unit} huge are told from others so well that ε is at least "
        f"{lowest:.3g} (confidence {1 - SIGNIFICANCE}), and {epsilon:.4g} is claimed",
    )  # fmt: skip


def _has_uploads(noise_runs: NoiseRuns, name: str) -> bool:
    shape = noise_runs.runs[0][0].values[name].shape
    return shape[-1:] == (noise_runs.subject.claim.size,)
