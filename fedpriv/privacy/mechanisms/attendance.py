"""Attendance of the clients in rounds of correlated noise.

Who takes part when is compared with the participation that was charged.
"""

from __future__ import annotations

import numpy as np

from fedpriv.common.errors import ReleaseError
from fedpriv.common.saved import StateDict
from fedpriv.privacy.core.client_groups import tensor
from fedpriv.privacy.matrix.participation import NEVER, Participation


class Attendance:
    """Rounds that each client has taken part in.

    The charge of a correlated mechanism presumes a participation pattern, such as "at most every tenth
    round". This class enforces the pattern.

    Attributes:
        participation: The pattern that the charge presumes.
        last: Last round of each client [K], or ``NEVER``.
        count: Number of rounds that each client took part in [K].
    """

    def __init__(self, participation: Participation, clients: int):
        self.participation = participation
        self.last = np.full(clients, NEVER, dtype=np.int64)
        self.count = np.zeros(clients, dtype=np.int64)

    def may(self, round_index: int) -> np.ndarray:
        """Return a mask [K] of the clients that may take part in a round."""
        return self.participation.may(round_index, self.last, self.count)

    def enter(self, round_index: int, cohort: np.ndarray) -> None:
        """Note that a cohort takes part in a round.

        Args:
            round_index: t = 0, 1, …
            cohort: Positions of the clients [c].

        Raises:
            ReleaseError: A client may not take part. Nothing is noted in this case.
        """
        may = self.participation.may(round_index, self.last[cohort], self.count[cohort])
        barred = cohort[~may]
        if len(barred):
            client = int(barred[0])
            raise ReleaseError(
                f"round {round_index + 1}: client {client} was in round {self.last[client] + 1} and in "
                f"{self.count[client]} so far, against what was charged ({self.participation.describe()}); "
                "nothing of this round was released"
            )
        self.last[cohort] = round_index
        self.count[cohort] += 1

    def state_dict(self) -> dict[str, object]:
        return {"last": tensor(self.last), "count": tensor(self.count)}

    def load_state_dict(self, state: StateDict) -> None:
        self.last = state["last"].cpu().numpy().copy()
        self.count = state["count"].cpu().numpy().copy()
