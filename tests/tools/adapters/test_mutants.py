"""Planted faults in foreign code are found by the check that is for them; correct twins pass."""

from __future__ import annotations

import more_mutants
import mutants
import pytest
from local_adapter import checks_of

from fedpriv.common.errors import ConfigError
from fedpriv.tools.verify.table import failed

FAULTS = [  # the fault, kind and words of the check that finds it, and a correct twin of its own claim
    ("UnequalWeights", "sensitivity", "worst client", "UnequalWeightsCharged"),
    ("DrawnWithReplacement", "sampling", "cohorts: members", "FedAvgForReplacement"),
    ("HalfSensitivity", "noise", "std of update", "HalfSensitivityCharged"),
    ("ClipAfterMean", "sensitivity", "worst client", "ClipAfterMeanCharged"),
    ("DiscardedClip", "sensitivity", "a client huge", "FedAvg"),
    ("NanPasses", "sensitivity", "a client not a number", "FedAvg"),
    ("RealisedDenominator", "sensitivity", "worst client", "RealisedDenominatorOfFixedSize"),
    ("DenominatorCountsClients", "sensitivity", "noise with a client absent",
     "DenominatorCountsClientsOfFixedNumber"),
    ("AverageOfEveryone", "sensitivity", "a client absent", "Everyone"),
    ("LastLayerNotClipped", "sensitivity", "a client huge in its last number", "FedAvg"),
    ("OnlyOneNormChecked", "sensitivity", "a client huge", "LayersClippedToTheirShare"),
    ("NoiseOfOneClipNorm", "noise", "std of update", "FedAvgForReplacement"),
    ("NoiseByLayer", "noise", "std of update", "NoiseByLayerCharged"),
    ("LayerWithoutNoise", "noise", "update: worst number", "FedAvg"),
    ("CentredNoise", "noise", "update: directions", "FedAvg"),
    ("HalfNoiseInOneDirection", "noise", "update: directions", "FedAvg"),
    ("TruncatedNoise", "noise", "update: shape", "FedAvg"),
    ("CoarseGrid", "noise", "update: distinct values", "FineGrid"),
    ("NoiseSeededEachRound", "independence", "the same noise again", "FedAvg"),
    ("SameStreamEachRound", "independence", "the same noise again", "SameStreamInOneRound"),
    ("NoiseBeforeClipping", "noise", "std of update", "Everyone"),
    ("NoNoiseInTheLastRound", "noise", "update: worst round", "FedAvg"),
    ("NoiseGrowsWithData", "noise", "the same with other data", "FedAvg"),
    ("SameNoiseForAllClients", "independence", "update: over clients", "Uploads"),
    ("UploadsChargedAsASum", "noise", "std of update", "SumOfNoisyUploads"),
    ("SumOfThoseThere", "sensitivity", "noise with a client absent", "SumOfNoisyUploads"),
    ("ShuffledBatches", "sampling", "cohorts: sizes", "FedAvgForReplacement"),
    ("FirstClientAlways", "sampling", "cohorts: worst member", "Everyone"),
    ("SameCohortEachRound", "sampling", "cohorts: rounds", "SameCohortInOneRound"),
    ("BatchNormStatistics", "charge", "what leaves", "FrozenStatistics"),
    ("StatisticsCalledPublic", "outside", "running_mean", "FrozenStatistics"),
    ("CompositionLeftOut", "noise", "std of update", "CompositionCharged"),
    ("EpsilonOfOneRound", "charge", "ε of the claimed noise", "EpsilonOfAllRounds"),
    ("ClipMovesBeforeNoise", "noise", "std of update", "Adaptive"),
    ("CountUncharged", "charge", "what leaves", "Adaptive"),
    ("UncentredCount", "sensitivity", "count: a client", "UncentredCountCharged"),
    ("MedianNormCharged", "charge", "what is charged in rounds 2 to 4", "Adaptive"),
    ("MedianNormUncharged", "noise", "update: after rounds of large updates", "Adaptive"),
    ("MedianNormLater", "charge", "what is charged in rounds 2 to 4", "Adaptive"),
    ("LessNoiseCharged", "charge", "update: least noise multiplier", "TheSameNoiseCharged"),
    ("NoNoiseInTheTwelfthRound", "noise", "update: worst round of all 12", "TwelveRounds"),
    ("NoNoiseInLateRounds", "noise", "update: worst round of all 12", "TwelveRounds"),
    ("NoClippingInTheTwelfthRound", "sensitivity", "worst client", "TwelveRounds"),
    ("SeedPlusRound", "independence", "the same noise again", "FedAvg"),
    ("NoiseMadeOfMembership", "independence", "cohorts and noise", "FedAvg"),
    ("CountsClientsByEpsilon", "sensitivity", "noise with a client absent",
     "CountsClientsByEpsilonOfFixedNumber"),
    ("CountsClientsWithParticipation", "sensitivity", "noise with a client absent",
     "FixedNumberWithParticipation"),
    ("MeanWithoutDenominator", "noise", "std of update", "Everyone"),
    ("SumWithDenominator", "sensitivity", "worst client", "Everyone"),
    ("WeightsCountClients", "sensitivity", "weights with a client absent", "WeightsOfFixedNumber"),
    ("NoNoiseForNobody", "noise", "update: rounds without noise", "NoiseForNobody"),
    ("NoNumbersForNobody", "noise", "update: finite numbers", "NoiseForNobody"),
    ("MembersAddNoise", "independence", "cohorts and noise", "FedAvg"),
    ("PartOfAnUpload", "sampling", "cohorts", "PartOfAnUploadOfEveryone"),
    ("BatchClipped", "sensitivity", "worst record", "DpSgd"),
    ("UnseededWeights", "sensitivity", "update: client 0 huge, on average", "Unseeded"),
    ("UnseededAbsence", "sampling", "cohorts: worst of 20 units, on average", "Unseeded"),
    ("SeedIgnored", "noise", "the same run with the same seed", "Everyone"),
]  # fmt: skip


def made(name: str) -> type:
    return getattr(mutants, name, None) or getattr(more_mutants, name)


@pytest.mark.few(1)
@pytest.mark.parametrize(("fault", "about", "words", "twin"), FAULTS, ids=lambda value: value)
def test_a_fault_is_found_by_its_check(fault, about, words, twin):
    found = failed(checks_of(made(fault)))
    assert [c for c in found if c.about == about and words in c.name], [c.name for c in found]


@pytest.mark.thorough
@pytest.mark.parametrize("twin", sorted({twin for *_, twin in FAULTS}, reverse=True))
def test_a_correct_twin_passes(twin):
    found = failed(checks_of(made(twin)))
    assert not found, [(c.name, c.measured, c.p_value) for c in found]


def test_noise_that_is_no_number_in_any_round_is_refused():
    with pytest.raises(ConfigError, match="update has numbers that are not finite"):
        checks_of(made("NeverNumbers"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("RealisedDenominator", "divided by the realised cohort"),
        ("ClipAfterMean", "mean is clipped"),
        ("MeanWithoutDenominator", "claim denominator=20"),
        ("SumWithDenominator", "claim denominator=1"),
        ("UnseededMeanWithoutDenominator", "claim denominator=20"),
    ],
)
def test_a_likely_cause_is_named(fault, cause):
    assert any(cause in check.note for check in checks_of(made(fault)) if check.passed is None)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "fault", ["HalfSensitivity", "NoiseOfOneClipNorm", "MeanWithoutDenominator"]
)
def test_gaussian_noise_of_a_wrong_scale_fails_by_its_scale_alone(fault):
    assert [c.name for c in failed(checks_of(made(fault)))] == ["std of update ÷ claimed"]


@pytest.mark.thorough
def test_noise_that_is_missing_is_not_called_other_than_gaussian():
    class NoNoise(mutants.Everyone):
        std = 0.0

    names = [c.name for c in failed(checks_of(NoNoise))]
    assert "std of update ÷ claimed" in names
    assert not [name for name in names if "shape" in name or "directions" in name], names


@pytest.mark.thorough
@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_noise_of_a_wrong_scale_in_one_part_fails_in_that_part_too(scale):
    class OnePart(mutants.FedAvg):
        def noise(self, random, size, data, number):
            noise = scale * super().noise(random, size, data, number)
            noise[7] = 0.0
            return noise

    (part,) = [c for c in failed(checks_of(OnePart)) if "worst number" in c.name]
    assert "(number 7)" in part.measured
    assert "the standard deviation of the whole" in part.note


@pytest.mark.thorough
def test_a_denominator_that_counts_clients_is_named_with_the_level_of_the_noise():
    found = {c.name: c for c in failed(checks_of(made("AverageOfEveryone")))}
    noise = found["update: noise with a client absent"]
    assert noise.measured.startswith("1.0526")  # 20/19
    assert "denominator" in noise.note
    assert "denominator" in found["update: weights with a client absent"].note
    assert "absent instead of opposite to all others" in found["update: a client absent"].note


@pytest.mark.thorough
def test_a_sum_that_is_clipped_as_well_as_the_updates_passes():
    assert not failed(checks_of(made("SumClippedToo")))


def test_there_are_at_least_twenty_faults_each_with_a_class_of_its_own():
    assert len({fault for fault, *_ in FAULTS}) == len(FAULTS) >= 20
