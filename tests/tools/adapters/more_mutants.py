"""Faults of clip norms that adapt and of records, beside those of ``mutants``. It needs numpy only."""

# ruff: noqa: RUF012
from __future__ import annotations

import numpy as np
from mutants import CLIENTS, CLIP, ROUNDS, DenominatorCountsClients, Everyone, FedAvg, Z


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


class MedianNormCharged(FedAvg):
    """The next clip norm is the median norm of the updates, which nobody charges."""

    charge = True

    def charged(self, state):
        return {"update": {"clip_norm": state[1]}} if state and self.charge else {}

    def round(self, state, data, seed):
        number, bound = state or (0, CLIP)
        random = self.random(seed, number)
        members = self.members(random, len(data), number)
        norms = [np.linalg.norm(update) for update in data]
        following = float(np.clip(np.nan_to_num(np.median(norms), nan=1), 1e-2, 1e2))
        total = sum((self.clipped(data[k], bound) for k in members), np.zeros(len(data[0])))
        total = total + Z * bound * random.standard_normal(len(total))
        return total / self.denominator, (number + 1, following)


class MedianNormLater(MedianNormCharged):
    """The clip norm is kept for two rounds."""

    def charged(self, state):
        return super().charged(state) if state and state[0] >= 2 else {}

    def round(self, state, data, seed):
        state = state or (0, CLIP)
        return super().round(state if state[0] >= 2 else (state[0], CLIP), data, seed)


class MedianNormUncharged(MedianNormCharged):
    charge = False


class LessNoiseCharged(FedAvg):
    """Each round is charged as it is, and ε is that of the first."""

    changes = {"epsilon": 6.0, "delta": 1e-5}

    def charged(self, state):
        return {"noise_multiplier": Z * 0.8 ** (state or 0)}

    def noise(self, random, size, data, number):
        return super().noise(random, size, data, number) * 0.8**number


class TheSameNoiseCharged(LessNoiseCharged):
    def charged(self, state):
        return {"noise_multiplier": Z}

    def noise(self, random, size, data, number):
        return FedAvg.noise(self, random, size, data, number)


# ---- late rounds


class TwelveRounds(FedAvg):
    changes = {"rounds": 12}
    noisy = clipping = 12

    def noise(self, random, size, data, number):
        return super().noise(random, size, data, number) * (number < self.noisy)

    def total(self, data, members, random):
        if random.bit_generator.seed_seq.entropy[1] < self.clipping:
            return super().total(data, members, random)
        return np.nan_to_num(np.array(data), posinf=0, neginf=0)[members].sum(axis=0)


class NoNoiseInTheTwelfthRound(TwelveRounds):
    noisy = 11


class NoNoiseInLateRounds(TwelveRounds):
    noisy = 8


class NoClippingInTheTwelfthRound(TwelveRounds):
    clipping = 11


class SeedPlusRound(FedAvg):
    def random(self, seed, number):
        return np.random.default_rng(seed + number)


class NoiseMadeOfMembership(FedAvg):
    """Members and noise come from two generators with the same seed."""

    def members(self, random, count, number):
        same = np.random.default_rng(random.bit_generator.seed_seq.entropy)
        return np.flatnonzero(same.standard_normal(count) < -0.6745)

    def noise(self, random, size, data, number):
        same = np.random.default_rng(random.bit_generator.seed_seq.entropy)
        return self.std * same.standard_normal(size)


# ---- denominators that count


class CountsClientsByEpsilon(DenominatorCountsClients):
    changes = {"noise_multiplier": None, "epsilon": 6.0, "delta": 1e-5}


class CountsClientsByEpsilonOfFixedNumber(CountsClientsByEpsilon):
    changes = {**CountsClientsByEpsilon.changes, "neighbours": "zero_out"}


class CountsClientsWithParticipation(DenominatorCountsClients):
    """Participation is held still, so that all are there, whoever takes part."""

    holds_still = ("seed", "participation")

    def round(self, state, data, seed, participants=None):
        self.participants = participants
        return super().round(state, data, seed)

    def members(self, random, count, number):
        members = super().members(random, count, number)
        return members if self.participants is None else np.array(self.participants, dtype=int)


class FixedNumberWithParticipation(CountsClientsWithParticipation):
    changes = {"neighbours": "zero_out"}


class WeightsCountClients(FedAvg):
    """The noise is that of a fixed denominator; the mean of the updates has one that counts."""

    def total(self, data, members, random):
        return super().total(data, members, random) * len(data) / CLIENTS


class WeightsOfFixedNumber(WeightsCountClients):
    changes = {"neighbours": "zero_out"}


class MeanWithoutDenominator(Everyone):
    """A mean leaves, and the claim is that of a sum."""

    changes = {**Everyone.changes, "denominator": None}


class SumWithDenominator(Everyone):
    """A sum leaves, and the claim is that of a mean."""

    denominator = 1.0
    changes = {**Everyone.changes, "denominator": 20.0}


class SumClippedToo(Everyone):
    """Each update is clipped, and then the sum, which moves no further by that."""

    def total(self, data, members, random):
        return self.clipped(super().total(data, members, random), 4 * CLIP)


class UnseededMeanWithoutDenominator(MeanWithoutDenominator):
    holds_still = ()


# ---- empty cohorts


class NoNoiseForNobody(FedAvg):
    changes = {"sample_rate": 0.05}
    finite = 0.0

    def members(self, random, count, number):
        return np.flatnonzero(random.random(count) < 0.05)

    def noise(self, random, size, data, number):
        noise = super().noise(random, size, data, number)
        members = self.members(self.random(self.seed, number), len(data), number)
        return noise if len(members) else self.finite * noise

    def round(self, state, data, seed):
        self.seed = seed
        return super().round(state, data, seed)


class NoNumbersForNobody(NoNoiseForNobody):
    finite = np.nan


class NoiseForNobody(NoNoiseForNobody):
    finite = 1.0


class MembersAddNoise(FedAvg):
    """Each member adds a share for the expected cohort."""

    def total(self, data, members, random):
        self.count = len(members)
        return super().total(data, members, random)

    def noise(self, random, size, data, number):
        noise = super().noise(random, size, data, number)
        return noise * np.sqrt(max(1, self.count) / self.denominator)


class LaplaceByEpsilon(Everyone):
    changes = {
        **Everyone.changes,
        "noise_multiplier": None,
        "epsilon": 5.0,
        "delta": 1e-5,
        "rounds": 1,
    }

    def noise(self, random, size, data, number):
        return random.laplace(0.0, 20.0, size)


class LaplaceWithoutClipping(LaplaceByEpsilon):
    def clipped(self, update, bound=CLIP):
        return np.nan_to_num(update, posinf=0, neginf=0)


class NeverNumbers(Everyone):
    def noise(self, random, size, data, number):
        return np.full(size, np.nan)


# ---- what cannot be read


class PartOfAnUpload(FedAvg):
    """Members cannot be read from what leaves, so that no sampling may be believed."""

    def round(self, state, data, seed):
        seen, number = super().round(state, data, seed)
        return seen[:-1], number


class PartOfAnUploadOfEveryone(Everyone):
    def round(self, state, data, seed):
        seen, number = super().round(state, data, seed)
        return seen[:-1], number


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
