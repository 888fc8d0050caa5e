"""Faults of clip norms that adapt and of records, beside those of ``mutants``. It needs numpy only."""

# ruff: noqa: RUF012
from __future__ import annotations

import numpy as np
from mutants import CLIP, ROUNDS, Everyone, FedAvg, Z


class Adaptive(FedAvg):
    """The clip norm follows the share of updates that are not clipped; the share is a second release."""

    holds_still = ("seed", "participation")
    count_std, charge_count, centre, early, bound = Z * 0.5, True, 0.5, False, 0.5

    def __init__(self):
        super().__init__()
        del self.claim["clip_norm"], self.claim["noise_multiplier"], self.claim["denominator"]
        one = {"clip_norm": CLIP, "noise_multiplier": Z, "denominator": self.denominator}
        self.claim["releases"] = {"update": one}
        if self.charge_count:
            count = {**one, "clip_norm": self.bound}
            self.claim["releases"] = {"update": one, "count": count}

    def charged(self, state):
        return {"update": {"clip_norm": (state or (0, CLIP))[1]}}

    def round(self, state, data, seed, participants=None):
        number, bound = state or (0, CLIP)
        random = self.random(seed, number)
        members = self.members(random, len(data), number)
        members = members if participants is None else participants
        parts = [self.clipped(data[k], bound) for k in members]
        bits = [float(np.linalg.norm(data[k]) <= bound) - self.centre for k in members]
        count = (sum(bits) + self.count_std * random.standard_normal()) / self.denominator
        following = bound * np.exp(-0.3 * (count + self.centre - 0.5))
        scale = following if self.early else bound
        noise = Z * scale * random.standard_normal(len(data[0]))
        total = np.sum(parts, axis=0) if parts else np.zeros(len(data[0]))
        seen = {"update": (total + noise) / self.denominator, "count": [count]}
        return seen, (number + 1, float(following))


class ClipMovesBeforeNoise(Adaptive):
    early = True


class CountUncharged(Adaptive):
    charge_count = False


class UncentredCount(Adaptive):
    centre = 0.0


class UncentredCountCharged(Adaptive):
    centre, bound, count_std = 0.0, 1.0, Z


# ---- records


class DpSgd:
    """DP-SGD on given gradients of the records of one client."""

    holds_still = ("seed",)
    claim = {
        "unit": "record", "neighbours": "add_or_remove", "sampling": "poisson", "sample_rate": 0.3,
        "clip_norm": CLIP, "noise_multiplier": Z, "rounds": ROUNDS, "records": 16, "size": 40,
    }  # fmt: skip

    def clipped(self, gradients):
        gradients = np.where(np.isfinite(gradients).all(axis=1)[:, None], gradients, 0.0)
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        return (gradients * np.minimum(1.0, CLIP / np.maximum(norms, 1e-12))).sum(axis=0)

    def round(self, state, data, seed):
        number = state or 0
        random = np.random.default_rng([seed, number])
        lot = data[0][random.random(len(data[0])) < 0.3]
        return self.clipped(lot) + Z * CLIP * random.standard_normal(lot.shape[1]), number + 1


class BatchClipped(DpSgd):
    """The sum of a lot is clipped, and not each record."""

    def clipped(self, gradients):
        total = np.nan_to_num(gradients, posinf=0, neginf=0).sum(axis=0)
        return total * min(1.0, 3 * CLIP / max(np.linalg.norm(total), 1e-12))


# ---- seeds that cannot be held still


class Unseeded(Everyone):
    """The seed is not held still, as far as the checks know."""

    holds_still = ()


class UnseededWeights(Unseeded):
    def contribution(self, client, update, random):
        return self.clipped(update) * (2.0 if client == 0 else 1.0)


class UnseededAbsence(Unseeded):
    """Client 0 takes part in half of the rounds only, and all are claimed to."""

    def members(self, random, count, number):
        return np.arange(int(random.random() < 0.5), count)


class SeedIgnored(Everyone):
    generator = np.random.default_rng(5)

    def random(self, seed, number):
        return self.generator
