"""Tests that noise follows from the streams of its run alone, not from other runs and not from data."""

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
"""Number of identities of runs whose keys are compared."""


def repeated(context: Context) -> Check:
    """Test that a run with the same streams releases the same values, as all other checks assume."""
    releases, recording = context.releases(
        context.subject.streams(context.subject.sampling_name, "A")
    )
    distances = [_distance(releases.get(p), v) for p, v in context.own_releases.items()]
    distance = max(distances, default=0.0)
    return Check(
        "noise",
        "the same run again",
        f"apart by {distance:g}",
        "0",
        passed=distance == 0 and recording.failure is None,
        note="with the same keys a run releases other values: it draws random numbers outside its streams",
    )


def _distance(first: Tensor | None, second: Tensor) -> float:
    if first is None or first.shape != second.shape:
        return math.inf
    distances = (first.double() - second.double()).abs()
    both_nan = first.isnan() & second.isnan()
    return float(distances.masked_fill(both_nan, 0.0).max()) if first.numel() else 0.0


def two_runs(context: Context) -> Iterator[Check]:
    """Test that runs of other identities get independent streams from ``fedpriv train``."""
    if not context.gaussian:
        return
    subject = context.subject
    rounds = subject.parts.settings.rounds
    neighbour = subject.loop(context.variations[0]).context
    own_streams = subject.run_streams(rounds)
    other_streams = (
        ("another T", subject.run_streams((rounds or 0) + 1)),
        (f"one {subject.unit_words} changed", subject.run_streams(rounds, neighbour)),
    )
    first = _noise_under(context, own_streams, context.own_releases)
    for difference, streams in other_streams:
        second = _noise_under(context, streams, context.other_key)
        size = float(np.linalg.norm(second))
        # Given the second noise, its product with independent standard normals, divided by its
        # norm, is a standard normal.
        z = float(first @ second) / size if size else math.nan
        yield Check(
            "independence",
            f"of two runs: {difference}",
            f"{z:+.2f} std",
            "normal",
            float(statistics.normal_p(z)),
            note=f"the noise of two runs that differ by {difference} is not independent",
        )
    # Keys are compared as well: independent noise from equal keys of lots would pass the test above.
    of_runs = [own_streams, *(streams for _, streams in other_streams)]
    with tempfile.TemporaryDirectory(prefix="fedpriv-verify-") as temporary:
        for name in ("0", "1"):  # the same run, published twice
            folder = RunFolder(Path(temporary) / name).create()
            create_key(folder)
            of_runs.append(subject.run_streams(rounds, folder=folder))
    keys = [key for streams in of_runs for key in (streams.sampling_key, streams.noise_key)]
    yield Check(
        "independence",
        "of runs: another T, data, published twice",
        f"{len(set(keys))} keys",
        f"{len(keys)} keys",
        passed=len(set(keys)) == len(keys),
        note="two runs of different identities have the same key of lots or noise",
    )
    settings = replace(subject.parts.settings, publish=False)
    many = [streams_of_run(settings, f"verify, run {i}", None)[0].noise_key for i in range(_RUNS)]
    yield discreteness.run_keys(many, subject.streams("birthday", ""), _RUNS)


def _noise_under(context: Context, streams: SecretStreams, against: Releases) -> np.ndarray:
    """Return the noise of the reference's lots under other streams, as a standardised difference."""
    lots = context.subject.streams(context.subject.sampling_name, "")
    releases, _ = context.releases(lots.with_noise(streams.noise_key))
    # The difference of two releases has twice the variance of the noise of one.
    return context.differences(releases, against) / math.sqrt(2.0)


def same_noise(context: Context) -> Iterator[Check]:
    """Test that the noise of two keys is equal, number by number, with other data and with other lots."""
    if not context.gaussian:
        return
    subject, tolerance = context.subject, sensitivity.ROUNDING + context.rounding()
    reference = context.differences(context.own_releases, context.other_key)
    pairs = [
        (f"a {subject.unit_words} {variation.name}", variation, subject.sampling_name)
        for variation in context.variations
        if variation.name in (ABSENT, "huge", "other tokens")
    ]
    pairs.append(("other lots and cohorts", AS_IT_IS, "other lots"))
    if (none_sampled := empty(subject, context.adds_or_removes)) is not None:
        pairs.append((none_sampled.name, none_sampled, subject.sampling_name))
    for change, variation, lots in pairs:
        (first, _), (second, _) = (
            context.releases(subject.streams(lots, key), variation) for key in ("A", "B1")
        )
        yield sensitivity.scale_check(
            reference, context.differences(first, second), change, tolerance
        )
