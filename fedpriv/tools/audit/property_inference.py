"""Property inference on one run: does what a client sends say something of its data that the task does not
ask?

Melis, Song, De Cristofaro, Shmatikov, "Exploiting unintended feature leakage in collaborative learning"
(S&P 2019). Of half of the clients, the auxiliary ones, the property is known; at every snapshot a random
forest learns it from their contributions. The score of a target, one of the other half, is the mean over
snapshots of what the forests say of its contributions.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.common.errors import ConfigError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.experiment import snapshots
from fedpriv.tools.audit.classifier import forest
from fedpriv.tools.audit.contributions import ContributionObserver
from fedpriv.tools.audit.properties import FEWEST, ClientProperty, read_property
from fedpriv.tools.audit.request import PropertyOptions
from fedpriv.tools.audit.statistics import Estimate, auc
from fedpriv.tools.audit.subject import AuditedRun

INTERVAL = "95 % interval of AUC by DeLong's variance on the logit scale, over the target clients"


@dataclass(frozen=True)
class PropertyAudit:
    """``baseline``: the AUC of the number of a client's records alone, which is public where a mean is
    weighted by it and shows in its noise. ``clients``: a row for each audited client: its value, whether it
    has the property, its role (``auxiliary``, ``target``) and its score (targets alone)."""

    subject: dict[str, Any]
    options: PropertyOptions
    meaning: str
    sees: str
    snapshots: list[int]
    auc: Estimate
    baseline: Estimate
    clients: pd.DataFrame

    def summary(self) -> dict[str, Any]:
        """What ``summary.json`` gets."""
        return {"property_auc": self.auc.value, "property": self.options.choice}

    def as_json(self) -> dict[str, Any]:
        counts = self.clients.groupby(["role", "has_property"]).size()
        return {
            "schema_version": 1,
            **self.subject,
            "options": asdict(self.options),
            "meaning": self.meaning,
            "observer_sees": self.sees,
            "snapshots": self.snapshots,
            "clients": {
                f"{role}, {'with' if has else 'without'}": int(n)
                for (role, has), n in counts.items()
            },
            "auc": self.auc.value,
            "auc_low": self.auc.low,
            "auc_high": self.auc.high,
            "auc_of_record_counts": self.baseline.value,
            "auc_of_record_counts_low": self.baseline.low,
            "auc_of_record_counts_high": self.baseline.high,
            "intervals": INTERVAL,
            "warnings": self.warnings(),
        }

    def warnings(self) -> list[str]:
        """What a reader of the AUC must know."""
        if self.baseline.low <= 0.5:
            return []
        return [
            "The property goes with how many records a client has: this number alone has an AUC of "
            f"{self.baseline.value:.3f}. It is no secret where it sets a client's noise or weight."
        ]


def audit_property(subject: AuditedRun, options: PropertyOptions) -> PropertyAudit:
    """Attack the property. Raises ConfigError without snapshots, or with too few clients."""
    found = read_property(subject, options.choice)
    rounds = subject.snapshot_rounds(options.snapshots)
    if not rounds:
        raise ConfigError(
            f"{subject.run.path} has no snapshots; run it with runtime.snapshot_interval=N"
        )
    clients = _audited(found, options)
    auxiliary = _halves(found.has[clients], options.seed)
    scores = infer(subject, clients, found.has[clients], auxiliary, rounds, options.seed)
    target, has = ~auxiliary, found.has[clients] == 1
    sizes = subject.context.data.records_per_client[clients]
    if auc(sizes[auxiliary & has], sizes[auxiliary & ~has]).value < 0.5:
        sizes = -sizes  # those with the property have fewer records
    noised = "noised " * any(sigma > 0 for sigma in subject.noise_multipliers().values())
    sees = f"the {noised}aggregate of a cohort that has the client in it"
    if subject.parts.algorithm.trust.sees_each_upload:
        sees = "each client's upload" + (", with its noise" if noised else "")
    return PropertyAudit(
        subject=subject.facts(),
        options=options,
        meaning=found.meaning,
        sees=sees,
        snapshots=rounds,
        auc=auc(scores[target & has], scores[target & ~has]),
        baseline=auc(sizes[target & has], sizes[target & ~has]),
        clients=pd.DataFrame(
            {
                "client": clients,
                "value": found.value[clients],
                "has_property": has,
                "role": np.where(auxiliary, "auxiliary", "target"),
                "score": np.where(target, scores, np.nan),
            }
        ),
    )


def infer(
    subject: AuditedRun,
    clients: np.ndarray,
    has: np.ndarray,
    auxiliary: np.ndarray,
    rounds: list[int],
    seed: int,
) -> np.ndarray:
    """Mean score over the snapshots of each of ``clients`` [c]; 0 for the ``auxiliary`` ones (bool [c]),
    of which alone ``has`` [c] is read."""
    observer, target = ContributionObserver(subject, seed), ~auxiliary
    scores = np.zeros(len(clients))
    for number in rounds:
        rows = observer.rows(snapshots.load(subject.run.files, number), clients)
        classifier = forest(seed, smallest_leaf=1)
        classifier.fit(rows[auxiliary], has[auxiliary])
        scores[target] += classifier.predict_proba(rows[target])[:, 1] / len(rounds)
    return scores


def _audited(found: ClientProperty, options: PropertyOptions) -> np.ndarray:
    """At most so many of the clients, with the share that has the property kept, and enough of each."""
    clients = found.clients
    if len(clients) <= options.clients:
        return clients
    stream = numpy_stream(options.seed, "audit_clients")
    chosen = []
    for has in (0, 1):
        own = clients[found.has[clients] == has]
        wanted = min(len(own), max(FEWEST, round(options.clients * len(own) / len(clients))))
        chosen.append(stream.choice(own, wanted, replace=False))
    return np.sort(np.concatenate(chosen))


def _halves(has: np.ndarray, seed: int) -> np.ndarray:
    """Which clients are auxiliary: half of those with the property and half of those without."""
    stream = numpy_stream(seed, "audit_auxiliary")
    auxiliary = np.zeros(len(has), dtype=bool)
    for kind in (0, 1):
        own = stream.permutation(np.flatnonzero(has == kind))
        auxiliary[own[: len(own) // 2]] = True
    return auxiliary
