"""Algorithms whose clients send one vector a round, of which the server may see only the sum.

``dp_fl_server`` is the server-side variant of DP-FL and Adap DP-FL (Fu, Chen, Han 2022): the optimiser is the
server's, and one clip norm holds for all, so that a round needs one sum:

    θ ← server optimiser( θ, (1/L) ( Σ_k Σ_{i in lot k} g_i min(1, C/‖g_i‖) + noise ) ),   L = q Σ_k n_k

``ddp_fedavg`` is DP-FedAvg with a cohort that the server sees, c of whose clients are left:

    θ ← θ + η_s (1/c) ( Σ_k Δ_k min(1, C/‖Δ_k‖) + noise )

``trust`` says who adds the noise and what the server sees: ``distributed`` (shares, and the sum; see
:mod:`fedpriv.privacy.mechanisms.shares`), ``local`` (dp_fl_server: every client noises its own sum, and
the server sees each), ``central`` (ddp_fedavg: the server adds all and is trusted). dp_fl and adap_dpfl as
they are keep an optimiser and a clip norm with every client, so that no sum is enough for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.algorithms.augmentation import make_augmentation
from fedpriv.algorithms.base import Algorithm, optional_cohort_size
from fedpriv.algorithms.server_optimizer import ServerOptimizer
from fedpriv.algorithms.server_step import ServerStepAlgorithm
from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.common.words import counted, records_of
from fedpriv.groups import option_of
from fedpriv.privacy.mechanisms.discrete import SUMS, VECTORS
from fedpriv.privacy.mechanisms.mechanism import Mechanism
from fedpriv.privacy.mechanisms.shares import (
    COLUMNS,
    FAMILIES,
    DiscreteShares,
    SharedMechanism,
    Tolerance,
    left_over,
)
from fedpriv.privacy.names import ZERO_OUT
from fedpriv.privacy.sampling import PoissonSampling, Sampling, WholeData
from fedpriv.privacy.trust import CENTRAL_TRUST, DISTRIBUTED_TRUST, LOCAL_TRUST, TRUSTS

if TYPE_CHECKING:
    from fedpriv.algorithms.problem import Problem
    from fedpriv.algorithms.trainer import Trainer
    from fedpriv.algorithms.uploads import Uploads
    from fedpriv.privacy.clippers import Clipper
    from fedpriv.privacy.noise_schedules import NoiseSchedule

CONTINUOUS = "continuous"
SHARES = (CONTINUOUS, *FAMILIES)
AGGREGATIONS = ("none", "masks")
SHARE_KEYS = (
    "tolerated_dropouts", "tolerated_collusion", "dropout", "shares", "bits", "scale", "wrap_limit",
    "secure_aggregation",
)  # fmt: skip
_BITS, _FEWEST_BITS, _MOST_BITS = 16, 2, 48
_WRAP_LIMIT = 1e-3


class SumOfUploads(Algorithm):
    """Keys of algorithms that need a sum alone; ``trusts``: what ``trust`` may be.

    ``tolerated_dropouts`` s and ``tolerated_collusion`` t: n - t - s shares give the stated noise;
    ``dropout``: the probability with which a client drops out (simulated); ``shares``: ``continuous`` (an
    idealisation), ``discrete_gaussian`` or ``skellam``, modulo 2^``bits`` (16) with ``scale`` whole numbers
    in a clip norm (None: the finest grid that ``wrap_limit``, 1e-3, allows); ``secure_aggregation``:
    ``masks`` simulates those that cancel.
    """

    private = True
    row_per_client = False
    trusts: tuple[str, ...] = ()

    def _set_trust(
        self,
        trust: str,
        *,
        tolerated_dropouts: int = 0,
        tolerated_collusion: int = 0,
        dropout: float = 0.0,
        shares: str = CONTINUOUS,
        bits: int | None = None,
        scale: float | None = None,
        wrap_limit: float | None = None,
        secure_aggregation: str = "none",
    ) -> None:
        self.trust = TRUSTS[checks.one_of("trust", trust, self.trusts)]
        self.tolerance = Tolerance(
            checks.whole("tolerated_dropouts", tolerated_dropouts),
            checks.whole("tolerated_collusion", tolerated_collusion),
        )
        self.dropout = checks.number("dropout", dropout, at_least=0, below=1)
        self.shares = checks.one_of("shares", shares, SHARES)
        masked = checks.one_of("secure_aggregation", secure_aggregation, AGGREGATIONS) == "masks"
        whole = _BITS if bits is None else bits
        whole = checks.whole("bits", whole, at_least=_FEWEST_BITS, at_most=_MOST_BITS)
        cells = None if scale is None else checks.number("scale", scale, at_least=1)
        limit = _WRAP_LIMIT if wrap_limit is None else wrap_limit
        limit = checks.number("wrap_limit", limit, above=0, below=1)
        self._refuse_without_shares(
            masked, {"bits": bits, "scale": scale, "wrap_limit": wrap_limit}
        )
        self.discrete: DiscreteShares | None = None
        if self.shares != CONTINUOUS:
            rounding = SUMS if self.unit == "record" else VECTORS
            self.discrete = DiscreteShares(self.shares, whole, cells, limit, rounding, masked)
        self.metrics = COLUMNS if self.distributed else ()
        self._clients: int | None = None
        if self.clients_per_round is not None:
            self.tolerance.honest(self.clients_per_round)

    def _refuse_without_shares(self, masked: bool, grid: dict[str, object]) -> None:
        """Raise ArgumentError for keys of shares where there are none."""
        for name, value, free in (
            ("tolerated_dropouts", self.tolerance.dropouts, 0),
            ("tolerated_collusion", self.tolerance.collusion, 0),
            ("dropout", self.dropout, 0),
            ("shares", self.shares, CONTINUOUS),
        ):
            if value != free and not self.distributed:
                raise ArgumentError(name, value, f"{free} unless trust=distributed")
        if self.shares == CONTINUOUS:
            hint = "real numbers have no modulus"
            if masked:
                allowed = "none with shares=continuous"
                raise ArgumentError("secure_aggregation", "masks", allowed, hint)
            for name, value in grid.items():
                if value is not None:
                    raise ArgumentError(name, value, "null with shares=continuous", hint)

    @property
    def real_noise(self) -> bool:
        """Not with whole numbers."""
        return self.discrete is None

    # ---- who takes part

    @property
    def distributed(self) -> bool:
        """Whether clients add shares of the noise to a sum."""
        return self.trust.name == DISTRIBUTED_TRUST.name

    @property
    def announced(self) -> int | None:
        """n, how many clients a round is planned for; None: not known yet."""
        return self.clients_per_round or self._clients

    @property
    def honest(self) -> int | None:
        """h = n - t - s."""
        return None if self.announced is None else self.tolerance.honest(self.announced)

    @property
    def fewest_clients(self) -> int:
        """n - s: with fewer a round is aborted."""
        if not self.distributed or self.announced is None:
            return 1
        return self.announced - self.tolerance.dropouts

    def check_clients(self, clients: int) -> None:
        super().check_clients(clients)
        self._clients = clients
        self.tolerance.honest(self.announced)

    def learn_size(self, size: Callable[[], int]) -> None:
        if self.discrete is not None:
            self.discrete.size = size()

    def cohort(self, streams: SecretStreams, round_index: int, eligible: np.ndarray) -> np.ndarray:
        """Who was chosen and did not drop out."""
        chosen = super().cohort(streams, round_index, eligible)
        return left_over(streams, chosen, self.dropout, round_index)

    def mechanism(self, clipper: Clipper, schedule: NoiseSchedule) -> Mechanism:
        return SharedMechanism(self, clipper, schedule)

    # ---- words

    def _shares_words(self) -> tuple[tuple[str, str], ...]:
        if not self.distributed:
            return ()
        n, s, t = self.announced, self.tolerance.dropouts, self.tolerance.collusion
        who = "n - t - s" if n is None else f"{self.honest} of {n}"
        kind = self.shares.replace("_", " ")
        if self.discrete is None:
            kind += ", an idealisation"
        words = (
            f"{kind}; the shares of {who} clients give the stated noise "
            f"(tolerated: {counted(s, 'dropout')}, {counted(t, 'colluding client')})"
        )
        if self.dropout:
            words += f"; each drops out with probability {self.dropout:g}"
            if n is not None:
                from scipy.special import bdtrc

                aborted = bdtrc(s, n, self.dropout)
                words += f", which aborts a round with probability {aborted:.4g}"
        return (("shares of noise", words),)

    def own_caveats(self) -> tuple[str, ...]:
        if not self.distributed:
            return ()
        s, t = self.tolerance.dropouts, self.tolerance.collusion
        found = [
            f"Each of {self.announced} clients adds a share of the noise, and {self.honest} honest shares "
            f"together are the stated noise: up to {s} may drop out (tolerated_dropouts; a round with more "
            f"is aborted and releases nothing) and up to {t} may tell the server their shares "
            "(tolerated_collusion). With more colluding clients the guarantee does not hold.",
            "The server must see nothing but the sum: a secure aggregation protocol is assumed, with honest "
            "keys, and a server that follows it. Who takes part and who drops out is seen, and choosing the "
            "cohort amplifies nothing.",
        ]
        if self.discrete is None:
            found.append(
                "The shares are an idealisation (shares=continuous): real numbers, of which one Gaussian of "
                "the sum's distribution was drawn. No secure aggregation adds up real numbers."
            )
            return tuple(found)
        hides = "The protocol that hides single uploads was not simulated."
        if self.discrete.masked:
            hides = (
                "Masks that cancel were simulated; not modelled are a server that lies, the keys' "
                "infrastructure, and the recovery of masks of clients that drop out late."
            )
        family = self.shares.replace("_", " ")
        found.append(
            f"Sums are of whole numbers modulo 2^{self.discrete.bits}, with {family} shares that are drawn "
            f"within 2^-100 of their law. {hides}"
        )
        return tuple(found)


class DpFlServer(SumOfUploads):
    """Record level: sums of clipped gradients, and a server that steps. ``sample_rate`` q of each client's
    records (1: all); ``clients_per_round`` m, sampled uniformly (None: all)."""

    unit = "record"
    trusts = (LOCAL_TRUST.name, DISTRIBUTED_TRUST.name)

    def __init__(
        self,
        name: str,
        sample_rate: float = 1.0,
        optimizer: str = "sgd",
        learning_rate: float = 0.1,
        clients_per_round: int | None = None,
        trust: str = DISTRIBUTED_TRUST.name,
        augmentation_multiplicity: int | None = None,
        random_flip: bool | None = None,
        random_crop: int | None = None,
        crop_fill: str | None = None,
        **settings: Any,
    ):
        """``augmentation_multiplicity`` and what follows it: :mod:`fedpriv.algorithms.augmentation`;
        ``settings``: those of :class:`SumOfUploads`, and the server's optimiser's."""
        own = {key: settings.pop(key) for key in SHARE_KEYS if key in settings}
        self.augmentation = make_augmentation(
            augmentation_multiplicity, random_flip, random_crop, crop_fill
        )
        self.name = checks.text("name", name)
        self.sample_rate = checks.number("sample_rate", sample_rate, above=0, at_most=1)
        self.server = ServerOptimizer(optimizer, learning_rate, **settings)
        self.clients_per_round = optional_cohort_size(clients_per_round)
        self._set_trust(trust, **own)
        if self.discrete is not None and self.sample_rate != 1:
            raise ArgumentError(
                "sample_rate",
                sample_rate,
                f"1 with shares={self.shares}",
                "no bound is proven here for sampled lots with noise of whole numbers",
            )

    def refuse_clipper(self, clipper: Clipper) -> None:
        """Records are clipped as they are. Raises ConfigError."""
        if clipper.transforms:
            raise ConfigError(
                "clipper",
                option_of("clipper", clipper),
                f"one that does not scale coordinates with algorithm={self.name}",
            )

    def sampling_of(self, records: int) -> Sampling:
        """How every client samples its lot."""
        return WholeData() if self.sample_rate == 1 else PoissonSampling(self.sample_rate)

    def start(self, problem: Problem) -> Trainer:
        from fedpriv.algorithms.record_sums import RecordSums
        from fedpriv.algorithms.server_steps import AddChange
        from fedpriv.algorithms.trainer import Trainer

        rows = self.discrete is not None
        work = RecordSums(problem, self.sampling_of(0), rows=rows, augmentation=self.augmentation)
        return Trainer(problem, work, self.server.make(problem.model), AddChange(problem.model))

    def records_per_step(self, records: float) -> float:
        return self.sample_rate * records

    def describe(self, clients: int | None, records: int | None) -> tuple[tuple[str, str], ...]:
        who = f"{self.clients_per_round or 'all'} clients"
        lot = "all" if self.sample_rate == 1 else f"a Poisson lot of {self.sample_rate:g}"
        return (
            (
                "each round",
                f"{who} send the clipped gradients of {lot} of their {records_of(records, '')}",
            ),
            ("server optimizer", self.server.describe()),
            *self._shares_words(),
        )


class DdpFedAvg(SumOfUploads, ServerStepAlgorithm):
    """Client level: changes of weights after E epochs. ``clients_per_round`` m, sampled uniformly (None:
    all); the rest as in :class:`~fedpriv.algorithms.cdp_fedavg.CdpFedAvg`."""

    unit = "client"
    trusts = (CENTRAL_TRUST.name, DISTRIBUTED_TRUST.name)

    def __init__(
        self,
        name: str,
        learning_rate: float = 1.0,
        optimizer: str = "sgd",
        local_epochs: int = 1,
        batch_size: int | None = None,
        local_learning_rate: float = 0.1,
        clients_per_round: int | None = None,
        trust: str = DISTRIBUTED_TRUST.name,
        **settings: Any,
    ):
        """``settings``: those of :class:`SumOfUploads`, and the server's optimiser's."""
        own = {key: settings.pop(key) for key in SHARE_KEYS if key in settings}
        ServerStepAlgorithm.__init__(self, name, learning_rate, optimizer, **settings)
        self.local_epochs = checks.whole("local_epochs", local_epochs, at_least=1)
        self.batch_size = (
            None if batch_size is None else checks.whole("batch_size", batch_size, at_least=1)
        )
        self.local_learning_rate = checks.number(
            "local_learning_rate", local_learning_rate, above=0
        )
        self.clients_per_round = optional_cohort_size(clients_per_round)
        self._set_trust(trust, **own)
        if not self.distributed and self.clients_per_round is not None:
            raise ArgumentError(
                "clients_per_round",
                clients_per_round,
                "null with trust=central",
                "algorithm=cdp_fedavg samples clients for a trusted server",
            )

    def sampling_of(self, records: int) -> Sampling:
        """Every client of the cohort, which the server sees: in the other data set its upload is zeros. A
        trusted server does not say who there is."""
        return WholeData(ZERO_OUT) if self.distributed else WholeData()

    def uploads(self, problem: Problem) -> Uploads:
        from fedpriv.algorithms.uploads import LocalChanges

        return LocalChanges(problem, self.local_epochs, self.batch_size, self.local_learning_rate)

    def denominator(self, cohort: int, clients: int) -> float:
        """c, which the server sees; K with central trust."""
        return float(max(1, cohort)) if self.distributed else float(clients)

    def start(self, problem: Problem) -> Trainer:
        trainer = super().start(problem)
        if self.discrete is not None:
            from fedpriv.algorithms.record_sums import UploadRows

            trainer.work = UploadRows(
                problem,
                self.uploads(problem),
                self.denominator,
                noise_on_the_mean=False,
                upload_weight=None,
            )
        return trainer

    def records_per_step(self, records: float) -> float:
        return records

    def describe(self, clients: int | None, records: int | None) -> tuple[tuple[str, str], ...]:
        batches = "whole data" if self.batch_size is None else f"batches of {self.batch_size}"
        return (
            (
                "each round",
                f"{self.clients_per_round or 'all'} clients, {counted(self.local_epochs, 'epoch')} of "
                f"{batches} over {records_of(records)}",
            ),
            ("local optimizer", f"sgd, learning rate {self.local_learning_rate:g}"),
            self._server_words(),
            *self._shares_words(),
        )
