"""Property inference on one run: do uploads tell something about a client's data that the task does not ask?

The property of half of the clients, the auxiliary ones, is known to the attacker. At every snapshot a random
forest learns the property from their contributions. The score of a target, one of the other half, is the mean
over snapshots of what the forests say of its contributions.

Reference:
    Melis, Song, De Cristofaro, Shmatikov, "Exploiting unintended feature leakage in collaborative learning",
    S&P 2019.
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
    """The result of property inference on one run.

    Attributes:
        subject: Facts about the run, as in the first keys of the JSON file.
        options: Options of the audit.
        meaning: The meaning of "has the property", in words.
        sees: What the observer sees of a client, in words.
        snapshots: Rounds of the snapshots that were used.
        auc: AUC of the target clients' scores.
        baseline: AUC of the number of a client's records alone. That number is public where a mean is
            weighted by it, and it shows in the client's noise.
        clients: A row for each audited client: its value, whether it has the property, its role
            (``auxiliary`` or ``target``) and its score (targets only).
    """

    subject: dict[str, Any]
    options: PropertyOptions
    meaning: str
    sees: str
    snapshots: list[int]
    auc: Estimate
    baseline: Estimate
    clients: pd.DataFrame

    def summary(self) -> dict[str, Any]:
        """Return the entries for ``summary.json``."""
        return {"property_auc": self.auc.value, "property": self.options.choice}

    def as_json(self) -> dict[str, Any]:
        """Return the content of the JSON file."""
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
        """Return a sentence for each reason to read the AUC with care."""
        if self.baseline.low <= 0.5:
            return []
        return [
            "The property goes with how many records a client has: this number alone has an AUC of "
            f"{self.baseline.value:.3f}. It is no secret where it sets a client's noise or weight."
        ]


def audit_property(subject: AuditedRun, options: PropertyOptions) -> PropertyAudit:
    """Run property inference on a run.

    Args:
        subject: The run.
        options: Options of the audit.

    Returns:
        The audit, not written yet.

    Raises:
        ConfigError: The run has no snapshots, or too few clients have the property or lack it.
    """
    client_property = read_property(subject, options.choice)
    rounds = subject.snapshot_rounds(options.snapshots)
    if not rounds:
        raise ConfigError(
            f"{subject.run.path} has no snapshots; run it with runtime.snapshot_interval=N"
        )
    clients = _audited(client_property, options)
    auxiliary = _halves(client_property.has[clients], options.seed)
    scores = infer(subject, clients, client_property.has[clients], auxiliary, rounds, options.seed)
    target, has = ~auxiliary, client_property.has[clients] == 1
    sizes = subject.context.data.clients.sizes[clients]
    if auc(sizes[auxiliary & has], sizes[auxiliary & ~has]).value < 0.5:
        sizes = -sizes  # clients with the property have fewer records
    noised = "noised " * any(sigma > 0 for sigma in subject.noise_multipliers().values())
    sees = f"the {noised}aggregate of a cohort that has the client in it"
    if subject.parts.algorithm.trust.sees_each_upload:
        sees = "each client's upload" + (", with its noise" if noised else "")
    return PropertyAudit(
        subject=subject.facts(),
        options=options,
        meaning=client_property.meaning,
        sees=sees,
        snapshots=rounds,
        auc=auc(scores[target & has], scores[target & ~has]),
        baseline=auc(sizes[target & has], sizes[target & ~has]),
        clients=pd.DataFrame(
            {
                "client": clients,
                "value": client_property.value[clients],
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
    """Return the mean score of each client over the snapshots.

    Args:
        subject: The run.
        clients: Numbers of the audited clients [c].
        has: Whether each client has the property [c]; read for auxiliary clients only.
        auxiliary: Mask of the clients that the attacker learns from [c] (bool).
        rounds: Rounds of the snapshots.
        seed: Seed of contributions and forests.

    Returns:
        Scores [c], 0 for auxiliary clients.
    """
    observer, target = ContributionObserver(subject, seed), ~auxiliary
    scores = np.zeros(len(clients))
    for number in rounds:
        rows = observer.rows(snapshots.load(subject.run.files, number), clients)
        classifier = forest(seed, smallest_leaf=1)
        classifier.fit(rows[auxiliary], has[auxiliary])
        scores[target] += classifier.predict_proba(rows[target])[:, 1] / len(rounds)
    return scores


def _audited(client_property: ClientProperty, options: PropertyOptions) -> np.ndarray:
    """Return the clients to audit, ascending.

    If there are more than the options allow, the share with the property stays, but at least ``FEWEST`` of
    each kind are chosen.
    """
    clients = client_property.clients
    if len(clients) <= options.clients:
        return clients
    stream = numpy_stream(options.seed, "audit_clients")
    chosen = []
    for has in (0, 1):
        members = clients[client_property.has[clients] == has]
        count = min(len(members), max(FEWEST, round(options.clients * len(members) / len(clients))))
        chosen.append(stream.choice(members, count, replace=False))
    return np.sort(np.concatenate(chosen))


def _halves(has: np.ndarray, seed: int) -> np.ndarray:
    """Return the mask of the auxiliary clients: half of those with the property and half of those without."""
    stream = numpy_stream(seed, "audit_auxiliary")
    auxiliary = np.zeros(len(has), dtype=bool)
    for kind in (0, 1):
        members = stream.permutation(np.flatnonzero(has == kind))
        auxiliary[members[: len(members) // 2]] = True
    return auxiliary
