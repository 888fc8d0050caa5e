"""The laws that every private clipper obeys. Subclass :class:`ClipperSuite` to put one through them."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from checkpoints import saved
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.privacy.clippers import Clipper
from fedpriv.privacy.clippers.step_clip import StepClip
from fedpriv.privacy.mechanisms import Unprotected

laws = settings(max_examples=examples(30), suppress_health_check=[HealthCheck.differing_executors])
norms_of_a_lot = st.lists(
    st.floats(0.0, 2.0**100, width=32) | st.floats(0.0, 10.0, width=32), min_size=1, max_size=20
)
ROUNDING = 1e-6
"""Relative error of a float32 product."""


class ClipperSuite(ABC):
    """Give ``make``: a clipper that is not started."""

    adapts = True
    """Whether what the first round saw moves the clip norm."""

    @abstractmethod
    def make(self) -> Clipper: ...

    def started(self, clients: int = 3) -> Clipper:
        clipper = self.make()
        clipper.start(clients, "cpu", lambda: 2.0)
        return clipper

    def one_round(self, clipper: Clipper, norms: list[float], clients: list[int]) -> torch.Tensor:
        """A round without noise in which every client has a lot of these norms; its clip norms."""
        members = torch.tensor(clients)
        clip = StepClip(clipper, 0, members)
        owners = torch.arange(len(clients)).repeat_interleave(len(norms))
        released = None
        if clipper.asks(0):
            answer = clip.statistic(torch.tensor(norms * len(clients)), owners)
            released = Unprotected(answer.values)
        gradients = Unprotected(torch.ones(len(clients), 4))
        sizes = torch.full((len(clients),), float(len(norms)))
        clipper.observe(members, released, gradients, sizes)
        return clip.norms

    @laws
    @given(norms=norms_of_a_lot)
    def test_no_clipped_record_exceeds_the_clip_norm(self, norms):
        clipper = self.started()
        norms = torch.tensor(norms)
        clip_norms = clipper.clip_norm(0, torch.zeros(len(norms), dtype=torch.long))
        assert (clipper.factors(norms, clip_norms) * norms <= clip_norms * (1 + ROUNDING)).all()

    @laws
    @given(norms=norms_of_a_lot)
    def test_what_keeps_to_the_clip_norm_is_enforced_without_a_change(self, norms):
        clipper = self.started()
        norms, owners = torch.tensor(norms), torch.zeros(len(norms), dtype=torch.long)
        enforced = StepClip(clipper, 0, torch.tensor([0])).factors(norms, owners)
        assert enforced.tolist() == clipper.factors(norms, clipper.clip_norm(0, owners)).tolist()

    def test_no_factor_is_negative_or_not_finite(self):
        clipper = self.started()
        norms = torch.tensor([0.0, 1e-38, 1e-20, 1.0, 1e20, 3e38, float("inf")])
        factors = clipper.factors(norms, clipper.clip_norm(0, torch.zeros(7, dtype=torch.long)))
        assert factors.isfinite().all()
        assert (factors >= 0).all()

    @laws
    @given(lots=st.lists(norms_of_a_lot, min_size=1, max_size=10))
    def test_clip_norms_stay_positive_and_finite(self, lots):
        clipper = self.started()
        for norms in lots:
            self.one_round(clipper, norms, [0, 1, 2])
        clip_norms = clipper.clip_norm(0, torch.arange(3))
        assert (clip_norms > 0).all()
        assert clip_norms.isfinite().all()

    def test_a_round_leaves_the_clip_norm_it_was_noised_with_as_it_was(self):
        clipper = self.started()
        clip_norms = clipper.clip_norm(0, torch.arange(3))
        before = clip_norms.tolist()
        self.one_round(clipper, [0.1, 50.0, 80.0], [0, 1, 2])
        assert clip_norms.tolist() == before

    def test_the_clip_norm_of_a_client_that_took_no_part_does_not_move(self):
        clipper = self.started()
        before = clipper.clip_norm(0, torch.arange(3)).tolist()
        self.one_round(clipper, [0.1, 50.0, 80.0], [2, 0])
        assert clipper.clip_norm(0, torch.arange(3)).tolist()[1] == before[1]

    def test_a_clip_norm_that_adapts_moves_and_any_other_does_not(self):
        clipper = self.started()
        before = clipper.clip_norm(0, torch.arange(3)).tolist()
        self.one_round(clipper, [30.0, 50.0, 80.0], [0, 1, 2])
        moved = clipper.clip_norm(0, torch.arange(3)).tolist() != before
        assert moved is self.adapts

    def test_clip_norms_come_in_the_order_asked_for(self):
        clipper = self.started()
        self.one_round(clipper, [30.0, 50.0], [1])
        everyone = clipper.clip_norm(0, torch.arange(3)).tolist()
        assert clipper.clip_norm(0, torch.tensor([1, 2, 0])).tolist() == [
            everyone[k] for k in (1, 2, 0)
        ]

    def test_a_restored_clipper_goes_on_exactly(self):
        clipper, restored = self.started(), self.started()
        self.one_round(clipper, [0.3, 5.0], [0, 2])
        restored.load_state_dict(saved(clipper.state_dict()))
        for one in (clipper, restored):
            self.one_round(one, [7.0, 0.1, 2.0], [0, 1])
        everyone = torch.arange(3)
        assert restored.clip_norm(0, everyone).tolist() == clipper.clip_norm(0, everyone).tolist()

    def test_a_saved_state_does_not_change_with_the_clipper(self):
        clipper, restored = self.started(), self.started()
        state, before = saved(clipper.state_dict()), clipper.clip_norm(0, torch.arange(3)).tolist()
        self.one_round(clipper, [30.0, 50.0], [0, 1, 2])
        restored.load_state_dict(state)
        assert restored.clip_norm(0, torch.arange(3)).tolist() == before
