"""The origin of the noise: of the run's streams alone, of this run alone, and not of the data."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import Tensor

from fedpriv.common.secret_streams import SecretStreams
from fedpriv.experiment.secrets import create_key, streams_of_run
from fedpriv.store.folder import RunFolder
from fedpriv.tools.verify import discreteness, sensitivity, statistics
from fedpriv.tools.verify.context import Context, Releases
from fedpriv.tools.verify.interventions import AS_IT_IS
from fedpriv.tools.verify.table import Check
from fedpriv.tools.verify.variations import ABSENT, empty

_RUNS = 2000
"""Identities of runs whose keys are compared."""


def repeated(context: Context) -> Check:
    """Run again under the same streams: all that follows holds chance equal by them."""
    kept, found = context.releases(context.subject.streams(context.subject.sampling_name, "A"))
    apart = max((_apart(kept.get(p), values) for p, values in context.own.items()), default=0.0)
    return Check(
        "noise",
        "the same run again",
        f"apart by {apart:g}",
        "0",
        passed=apart == 0 and found.broke is None,
        note="with the same keys a run releases something else: its chance is not of its streams",
    )


def _apart(one: Tensor | None, other: Tensor) -> float:
    if one is None or one.shape != other.shape:
        return math.inf
    apart = (one.double() - other.double()).abs()
    return float(apart.masked_fill(one.isnan() & other.isnan(), 0.0).max()) if one.numel() else 0.0


def two_runs(context: Context) -> Iterator[Check]:
    """Compare runs of other identities, with the streams that ``fedpriv train`` would give them."""
    if not context.gaussian:
        return
    subject = context.subject
    rounds = subject.parts.settings.rounds
    neighbour = subject.loop(context.variations[0]).context
    own = subject.run_streams(rounds)
    others = (
        ("another T", subject.run_streams((rounds or 0) + 1)),
        (f"one {subject.unit_words} changed", subject.run_streams(rounds, neighbour)),
    )
    first = _noise_under(context, own, context.own)
    for words, streams in others:
        second = _noise_under(context, streams, context.other_key)
        size = float(np.linalg.norm(second))
        z = float(first @ second) / size if size else math.nan
        yield Check(
            "independence",
            f"of two runs: {words}",
            f"{z:+.2f} std",
            "normal",
            float(statistics.normal_p(z)),
            note=f"two runs that differ in {words} have noise in common",
        )
    of_runs = [own, *(streams for _, streams in others)]
    with tempfile.TemporaryDirectory(prefix="fedpriv-verify-") as place:
        for name in ("0", "1"):  # the same run, published twice
            folder = RunFolder(Path(place) / name).create()
            create_key(folder)
            of_runs.append(subject.run_streams(rounds, folder=folder))
    keys = [key for streams in of_runs for key in (streams.sampling_key, streams.noise_key)]
    yield Check(
        "independence",
        "of runs: another T, data, published twice",
        f"{len(set(keys))} keys",
        f"{len(keys)} keys",
        passed=len(set(keys)) == len(keys),
        note="runs of other identities have keys of lots or noise in common",
    )
    settings = replace(subject.parts.settings, publish=False)
    many = [streams_of_run(settings, f"verify, run {i}", None)[0].noise_key for i in range(_RUNS)]
    yield discreteness.run_keys(many, subject.streams("birthday", ""), _RUNS)


def _noise_under(context: Context, streams: SecretStreams, against: Releases) -> np.ndarray:
    """Return standardised noise of the reference's lots under these streams, against that of another key."""
    own = context.subject.streams(context.subject.sampling_name, "")
    kept, _ = context.releases(own.with_noise(streams.noise_key))
    return context.differences(kept, against) / math.sqrt(2.0)


def same_noise(context: Context) -> Iterator[Check]:
    """Test that noise under two keys is the same number for number with other data and other lots."""
    if not context.gaussian:
        return
    subject, tolerance = context.subject, sensitivity.ROUNDING + context.rounding()
    reference = context.differences(context.own, context.other_key)
    pairs = [
        (f"a {subject.unit_words} {variation.name}", variation, subject.sampling_name)
        for variation in context.variations
        if variation.name in (ABSENT, "huge", "other tokens")
    ]
    pairs.append(("other lots and cohorts", AS_IT_IS, "other lots"))
    if (nobody := empty(subject, context.adds_or_removes)) is not None:
        pairs.append((nobody.name, nobody, subject.sampling_name))
    for what, variation, lots in pairs:
        (one, _), (other, _) = (
            context.releases(subject.streams(lots, key), variation) for key in ("A", "B1")
        )
        yield sensitivity.scale_check(reference, context.differences(one, other), what, tolerance)
