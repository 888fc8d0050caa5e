"""The base class of algorithms that need nothing but the sum of their clients' vectors.

Such an algorithm works under any trust. ``trust`` says who adds the noise and who sees what:

    distributed    clients add shares of the noise, and the server sees the sum alone
                   (:mod:`fedpriv.privacy.mechanisms.shares`)
    local          every client noises its own vector, and the server sees each noised vector
    central        the server adds all vectors and the noise, and is trusted
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.algorithms.base import Algorithm
from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import declared, field, number, one_of, or_null, whole
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.common.words import counted
from fedpriv.privacy.core.trust import DISTRIBUTED_TRUST, TRUSTS, Trust
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

if TYPE_CHECKING:
    from fedpriv.privacy.clippers import Clipper
    from fedpriv.privacy.noise_schedules import NoiseSchedule

CONTINUOUS = "continuous"
SHARES = (CONTINUOUS, *FAMILIES)
_BITS, _FEWEST_BITS, _MOST_BITS = 16, 2, 48
_WRAP_LIMIT = 1e-3


def _trust(name: str, value: str, part: SumOfUploads) -> Trust:
    return TRUSTS[checks.one_of(name, value, part.trusts)]


@declared
class SumOfUploads(Algorithm):
    """An algorithm that needs a sum alone.

    With s tolerated dropouts and t tolerated colluding clients of n clients, n - t - s shares of the noise
    give the stated noise. The guarantee holds while at most s clients drop out (else the round is aborted)
    and at most t tell the server their shares.

    Attributes:
        trusts: Names that ``trust`` may have in the class.
        trust: Who sees which uploads, and who adds the noise.
        tolerated_dropouts: s.
        tolerated_collusion: t.
        dropout: Probability with which a client drops out of a round, simulated.
        shares: Kind of the shares: ``continuous`` (an idealisation), or a family of whole numbers.
        bits: Bits of a coordinate: sums are modulo 2^bits.
        scale: Whole numbers in a clip norm; None: the finest grid that ``wrap_limit`` allows.
        wrap_limit: Probability with which a coordinate of a sum may wrap around.
        tolerance: s and t together.
        discrete: The shares of whole numbers; None where shares are continuous.
    """

    private = True
    sums_by_bucket = True
    row_per_client = False
    trusts: tuple[str, ...] = ()

    trust: Trust = field(
        _trust,
        default=DISTRIBUTED_TRUST.name,
        help=(
            "what the server sees: the noised sum (distributed), each noised upload (local), "
            "exact uploads (central)"
        ),
    )
    tolerated_dropouts: int = field(
        whole(),
        default=0,
        kw_only=True,
        unit="s",
        help="number of clients that may drop out of a round; with more the round is aborted",
    )
    tolerated_collusion: int = field(
        whole(),
        default=0,
        kw_only=True,
        unit="t",
        help="number of clients that may tell the server their shares of the noise without harm",
    )
    dropout: float = field(
        number(at_least=0, below=1),
        default=0.0,
        kw_only=True,
        help="probability with which a client drops out of a round, simulated",
    )
    shares: str = field(
        one_of(SHARES),
        default=CONTINUOUS,
        kw_only=True,
        help="shares of the noise: real numbers (an idealisation) or whole numbers",
    )
    bits: int | None = field(
        or_null(whole(at_least=_FEWEST_BITS, at_most=_MOST_BITS)),
        default=None,
        kw_only=True,
        help="number of bits of a coordinate: sums are modulo 2^bits; null: 16",
    )
    scale: float | None = field(
        or_null(number(at_least=1)),
        default=None,
        kw_only=True,
        help="number of grid steps in a clip norm; null: the finest grid that wrap_limit allows",
    )
    wrap_limit: float | None = field(
        or_null(number(above=0, below=1)),
        default=None,
        kw_only=True,
        help="probability with which a coordinate of a sum may wrap around; null: 1e-3",
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.tolerance = Tolerance(self.tolerated_dropouts, self.tolerated_collusion)
        self._refuse_without_shares()
        self.discrete: DiscreteShares | None = None
        if self.shares != CONTINUOUS:
            self.discrete = DiscreteShares(
                self.shares,
                _BITS if self.bits is None else self.bits,
                self.scale,
                _WRAP_LIMIT if self.wrap_limit is None else self.wrap_limit,
                SUMS if self.unit == "record" else VECTORS,
            )
        self.metrics = COLUMNS if self.distributed else ()
        self._clients: int | None = None
        if self.clients_per_round is not None:
            self.tolerance.honest(self.clients_per_round)

    def _refuse_without_shares(self) -> None:
        """Raise ArgumentError for arguments of shares where there are none."""
        neutral = {
            "tolerated_dropouts": 0,
            "tolerated_collusion": 0,
            "dropout": 0,
            "shares": CONTINUOUS,
        }
        for name, value in neutral.items():
            if getattr(self, name) != value and not self.distributed:
                raise ArgumentError(name, getattr(self, name), f"{value} unless trust=distributed")
        if self.shares == CONTINUOUS:
            for name in ("bits", "scale", "wrap_limit"):
                value = getattr(self, name)
                if value is not None:
                    raise ArgumentError(
                        name,
                        f"{value:g}",
                        "null with shares=continuous",
                        "real numbers have no modulus",
                    )

    @property
    def real_noise(self) -> bool:
        """False where the shares are whole numbers."""
        return self.discrete is None

    # ---- who takes part

    @property
    def distributed(self) -> bool:
        """True where clients add shares of the noise to a sum."""
        return self.trust.name == DISTRIBUTED_TRUST.name

    @property
    def announced(self) -> int | None:
        """Number of clients n for which a round is planned; None: not known yet."""
        return self.clients_per_round or self._clients

    @property
    def honest(self) -> int | None:
        """Number of clients h = n - t - s whose shares give the stated noise; None: not known yet."""
        return None if self.announced is None else self.tolerance.honest(self.announced)

    @property
    def fewest_clients(self) -> int:
        """Number of clients n - s with which a round can still run: with fewer it is aborted."""
        if not self.distributed or self.announced is None:
            return 1
        return self.announced - self.tolerance.dropouts

    def check_clients(self, clients: int) -> None:
        """Check that enough clients of the federation stay honest, and note their number for the plan.

        Raises:
            ArgumentError: A round has more clients than the federation, or no client of a round would be left
                whose share protects for certain.
        """
        super().check_clients(clients)
        self._clients = clients
        self.tolerance.honest(self.clients_per_round or clients)

    def learn_size(self, size: Callable[[], int]) -> None:
        if self.discrete is not None:
            self.discrete.size = size()

    def cohort(self, streams: SecretStreams, round_index: int, eligible: np.ndarray) -> np.ndarray:
        """Sample the clients of a round, and leave out those that drop out."""
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
        text = (
            f"{kind}; the shares of {who} clients give the stated noise "
            f"(tolerated: {counted(s, 'dropout')}, {counted(t, 'colluding client')})"
        )
        if self.dropout:
            text += f"; each drops out with probability {self.dropout:g}"
            if n is not None:
                # Imported late: a plan without dropouts needs no scipy.
                from scipy.special import bdtrc

                aborted = bdtrc(s, n, self.dropout)  # more than s of n drop out
                text += f", which aborts a round with probability {aborted:.4g}"
        return (("shares of noise", text),)

    def own_caveats(self) -> tuple[str, ...]:
        if not self.distributed:
            return ()
        s, t = self.tolerance.dropouts, self.tolerance.collusion
        dropouts = f"Up to {counted(s, 'client')}" if s else "No client"
        colluding = f"Up to {counted(t, 'client')}" if t else "No client"
        caveats = [
            f"Each of {self.announced} clients adds a share of the noise, and {self.honest} honest shares "
            f"together are the stated noise. {dropouts} may drop out of a round (tolerated_dropouts={s}); a "
            f"round with more dropouts is aborted and releases nothing. {colluding} may reveal a share of "
            f"noise to the server (tolerated_collusion={t}); with more the guarantee does not hold.",
            "The server must see nothing but the sum: a secure aggregation protocol is assumed, with honest "
            "keys, and a server that follows it. Who takes part and who drops out is seen, and choosing the "
            "cohort amplifies nothing.",
        ]
        if self.discrete is None:
            caveats.append(
                "The shares are an idealisation (shares=continuous): real numbers, of which one Gaussian of "
                "the sum's distribution was drawn. No secure aggregation adds up real numbers."
            )
            return tuple(caveats)
        family = self.shares.replace("_", " ")
        caveats.append(
            f"Sums are of whole numbers modulo 2^{self.discrete.bits}, with {family} shares that are drawn "
            "within 2^-100 of their law. The protocol that hides single uploads was not simulated."
        )
        return tuple(caveats)
