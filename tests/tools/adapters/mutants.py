"""A correct adapter, faults planted in it, and a correct twin of each fault. It needs numpy only.

``fedpriv verify --adapter tests/tools/adapters/mutants.py:HalfNoise`` shows what one of them looks like.
"""

# ruff: noqa: RUF012
from __future__ import annotations

import numpy as np

CLIENTS, RATE, CLIP, Z = 20, 0.25, 1.0, 1.1
ROUNDS = 4


class FedAvg:
    """Central DP-FedAvg on given updates: clip, sum over a Poisson cohort, add noise, divide by qK."""

    holds_still = ("seed",)
    denominator = RATE * CLIENTS
    std = Z * CLIP  # of the noise on the sum
    changes = {}  # of the claim

    def __init__(self):
        claim = {
            "unit": "client", "neighbours": "add_or_remove", "sampling": "poisson", "sample_rate": RATE,
            "clip_norm": CLIP, "noise_multiplier": Z, "denominator": self.denominator, "rounds": ROUNDS,
            "clients": CLIENTS,
        }  # fmt: skip
        claim.update(self.changes)
        self.claim = {key: value for key, value in claim.items() if value is not None}

    def random(self, seed, number):
        return np.random.default_rng([seed, number])

    def members(self, random, count, number):
        return np.flatnonzero(random.random(count) < RATE)

    def clipped(self, update, bound=CLIP):
        if not np.isfinite(update).all():
            return np.zeros_like(update)
        return update * min(1.0, bound / max(np.linalg.norm(update), 1e-12))

    def contribution(self, client, update, random):
        return self.clipped(update)

    def total(self, data, members, random):
        parts = [self.contribution(int(k), data[k], random) for k in members]
        return np.sum(parts, axis=0) if len(parts) else np.zeros_like(data[0])

    def noise(self, random, size, data, number):
        return self.std * random.standard_normal(size)

    def round(self, state, data, seed):
        number = state or 0
        random = self.random(seed, number)
        members = self.members(random, len(data), number)
        total = self.total(data, members, random)
        total = total + self.noise(random, total.shape, data, number)
        return total / self.denominator, number + 1


class FedAvgForReplacement(FedAvg):
    """The same with noise for 2C, a fixed cohort size, and neighbours that replace a client."""

    std = 2 * Z * CLIP
    changes = {
        "neighbours": "replace_one", "sampling": "without_replacement", "sample_size": 5, "sample_rate": None,
    }  # fmt: skip

    def members(self, random, count, number):
        return random.choice(count, 5, replace=False)


class Everyone(FedAvg):
    """The same without sampling."""

    denominator = float(CLIENTS)
    changes = {"sampling": "none", "sample_rate": None}

    def members(self, random, count, number):
        return np.arange(count)


# ---- clipping and weights


class UnequalWeights(FedAvg):
    def contribution(self, client, update, random):
        return self.clipped(update) * (2.0 if client == 0 else 1.0)


class UnequalWeightsCharged(UnequalWeights):
    std, changes = 2 * Z * CLIP, {"clip_norm": 2 * CLIP}


class ClipAfterMean(FedAvg):
    def total(self, data, members, random):
        updates = np.nan_to_num(np.array(data), posinf=0, neginf=0)[members]
        mean = updates.sum(axis=0) / self.denominator
        return self.clipped(mean) * self.denominator


class ClipAfterMeanCharged(ClipAfterMean):
    """The mean is clipped to C, so one client moves it by up to 2C."""

    std = 2 * Z * CLIP * FedAvg.denominator
    changes = {"clip_norm": 2 * CLIP * FedAvg.denominator}


class DiscardedClip(FedAvg):
    def contribution(self, client, update, random):
        self.clipped(update)
        return update if np.isfinite(update).all() else np.zeros_like(update)


class NanPasses(FedAvg):
    def clipped(self, update, bound=CLIP):
        return update * min(1.0, bound / max(np.linalg.norm(update), 1e-12))


class RealisedDenominator(FedAvg):
    def round(self, state, data, seed):
        number = state or 0
        random = self.random(seed, number)
        members = self.members(random, len(data), number)
        total = self.total(data, members, random)
        return (total + self.noise(random, total.shape, data, number)) / max(
            1, len(members)
        ), number + 1


class DenominatorCountsClients(FedAvg):
    """The mean is over the expected cohort of those who are there, so the noise tells how many they are."""

    def round(self, state, data, seed):
        seen, number = super().round(state, data, seed)
        return seen * CLIENTS / len(data), number


class DenominatorCountsClientsOfFixedNumber(DenominatorCountsClients):
    changes = {"neighbours": "zero_out"}


class RealisedDenominatorOfFixedSize(FedAvgForReplacement):
    def round(self, state, data, seed):
        return RealisedDenominator.round(self, state, data, seed)


class AverageOfEveryone(Everyone):
    """It divides by the number of clients there are, which differs between neighbours."""

    def round(self, state, data, seed):
        self.denominator = float(len(data))
        return super().round(state, data, seed)


class LastLayerNotClipped(FedAvg):
    def contribution(self, client, update, random):
        return np.concatenate([self.clipped(update[:40]), np.nan_to_num(update[40:], posinf=0)])


class OnlyOneNormChecked(FedAvg):
    """Each of four layers is clipped to C."""

    def contribution(self, client, update, random):
        return np.concatenate([self.clipped(layer) for layer in np.split(update, 4)])


class LayersClippedToTheirShare(FedAvg):
    def contribution(self, client, update, random):
        return np.concatenate([self.clipped(layer, CLIP / 2) for layer in np.split(update, 4)])


# ---- noise


class HalfSensitivity(FedAvg):
    std = Z * CLIP / 2


class HalfSensitivityCharged(HalfSensitivity):
    changes = {"noise_multiplier": Z / 2}


class NoiseOfOneClipNorm(FedAvgForReplacement):
    std = Z * CLIP


class NoiseByLayer(FedAvg):
    """Each of four layers gets noise for its share of the sensitivity, C/2, and all together move by C."""

    std = Z * CLIP / 2


class NoiseByLayerCharged(NoiseByLayer):
    changes = {"noise_multiplier": Z / 2}


class LayerWithoutNoise(FedAvg):
    def noise(self, random, size, data, number):
        noise = super().noise(random, size, data, number)
        noise[..., -12:] = 0.0
        return noise


class CentredNoise(FedAvg):
    def noise(self, random, size, data, number):
        noise = super().noise(random, size, data, number)
        return noise - noise.mean()


class HalfNoiseInOneDirection(FedAvg):
    def noise(self, random, size, data, number):
        noise = super().noise(random, size, data, number)
        direction = np.random.default_rng(3).standard_normal(size)
        direction /= np.linalg.norm(direction)
        return noise - 0.5 * (noise @ direction) * direction


class TruncatedNoise(FedAvg):
    def noise(self, random, size, data, number):
        noise = np.clip(super().noise(random, size, data, number), -2.5 * self.std, 2.5 * self.std)
        return noise


class CoarseGrid(FedAvg):
    grid = 0.25

    def noise(self, random, size, data, number):
        noise, step = super().noise(random, size, data, number), self.grid * self.std
        # The rounding adds step²/12 to the variance, which is taken out again.
        return np.round(noise * np.sqrt(1 - self.grid**2 / 12) / step) * step


class FineGrid(CoarseGrid):
    grid = 2.0**-14


class NoiseSeededEachRound(FedAvg):
    def noise(self, random, size, data, number):
        return self.std * np.random.default_rng(7).standard_normal(size)


class SameStreamEachRound(FedAvg):
    def random(self, seed, number):
        return np.random.default_rng(seed)


class SameStreamInOneRound(SameStreamEachRound):
    changes = {"rounds": 1}


class NoiseBeforeClipping(Everyone):
    def contribution(self, client, update, random):
        return self.clipped(np.nan_to_num(update) + self.std * random.standard_normal(update.shape))

    def noise(self, random, size, data, number):
        return np.zeros(size)


class NoNoiseInTheLastRound(FedAvg):
    def noise(self, random, size, data, number):
        return super().noise(random, size, data, number) * (number + 1 < ROUNDS)


class NoiseGrowsWithData(FedAvg):
    def noise(self, random, size, data, number):
        large = np.nanmax(np.abs(np.nan_to_num(np.array(data), posinf=0, neginf=0)))
        return super().noise(random, size, data, number) * (1.0 + 0.01 * min(1.0, large))


class Uploads(Everyone):
    """Each client sends its own upload with noise, and the server sees them."""

    denominator = 1.0
    same = False

    def total(self, data, members, random):
        return np.stack([self.clipped(update) for update in data])

    def noise(self, random, size, data, number):
        if self.same:
            return self.std * random.standard_normal(size[-1]) * np.ones(size)
        return self.std * random.standard_normal(size)


class SameNoiseForAllClients(Uploads):
    same = True


class UploadsChargedAsASum(Uploads):
    """Each client adds its share of the noise, and the server sees each upload."""

    std = Z * CLIP / np.sqrt(CLIENTS)


class SumOfThoseThere(UploadsChargedAsASum):
    """Each client adds its share of the noise, so that one client less is less noise."""

    def round(self, state, data, seed):
        uploads, number = super().round(state, data, seed)
        return uploads.sum(axis=0), number


class SumOfNoisyUploads(SumOfThoseThere):
    changes = {**Everyone.changes, "neighbours": "zero_out"}


# ---- who takes part


class DrawnWithReplacement(FedAvgForReplacement):
    def members(self, random, count, number):
        return random.integers(0, count, 5)


class ShuffledBatches(FedAvg):
    """Fixed cohorts of a shuffled order, charged as Poisson."""

    def members(self, random, count, number):
        return random.permutation(count)[:5]


class FirstClientAlways(FedAvg):
    def members(self, random, count, number):
        return np.union1d(super().members(random, count, number), [0])


class SameCohortEachRound(FedAvg):
    def members(self, random, count, number):
        state = np.random.default_rng([random.bit_generator.seed_seq.entropy[0], 99])
        return np.flatnonzero(state.random(count) < RATE)


class SameCohortInOneRound(SameCohortEachRound):
    changes = {"rounds": 1}


# ---- what is charged


class BatchNormStatistics(FedAvg):
    def round(self, state, data, seed):
        update, number = super().round(state, data, seed)
        return {"update": update, "running_mean": [np.nanmean(np.array(data))]}, number


class FrozenStatistics(FedAvg):
    changes = {"public": ["running_mean"]}

    def round(self, state, data, seed):
        update, number = super().round(state, data, seed)
        return {"update": update, "running_mean": [0.5]}, number


class StatisticsCalledPublic(BatchNormStatistics):
    changes = {"public": ["running_mean"]}


class CompositionLeftOut(FedAvg):
    """ε = 2.32 holds for one round of this noise."""

    changes = {"noise_multiplier": None, "epsilon": 2.32, "delta": 1e-5, "rounds": 10}


class CompositionCharged(CompositionLeftOut):
    changes = {**CompositionLeftOut.changes, "rounds": 1}


class EpsilonOfOneRound(FedAvg):
    changes = {"epsilon": 2.32, "delta": 1e-5, "rounds": 10}


class EpsilonOfAllRounds(FedAvg):
    changes = {"epsilon": 6.0, "delta": 1e-5, "rounds": 10}
