"""Aggregation: the rule by which the server combines the uploads that it sees, before its optimiser.

    θ ← server optimiser(θ, rule(u_1, …, u_c)),    u_k the upload of client k as it left the client

``aggregation=mean`` is no rule: it is the weighted sum, of which only a sum need be released. A rule receives
each upload by itself, released with noise from a key of its own; on such uploads it is post-processing.

Begin with :mod:`~fedpriv.aggregation.base`, the interface of a rule, and with the base of the rules against
malicious clients, :mod:`~fedpriv.aggregation.robust`; they compute with :mod:`~fedpriv.aggregation.vectors`.
"""

from fedpriv.aggregation.base import Aggregation, Rule
from fedpriv.aggregation.bucketed_median import BucketedMedian
from fedpriv.aggregation.coordinate import CoordinateMedian, RobustLearningRate, TrimmedMean
from fedpriv.aggregation.distances import Krum, MultiKrum
from fedpriv.aggregation.iterative import CenteredClipping, GeometricMedian
from fedpriv.aggregation.robust import RobustAggregation
from fedpriv.aggregation.similarity import Flame, FoolsGold
from fedpriv.aggregation.spectral import CovarianceFilter, DivideAndConquer
from fedpriv.aggregation.trust_root import FlTrust

__all__ = [
    "Aggregation",
    "BucketedMedian",
    "CenteredClipping",
    "CoordinateMedian",
    "CovarianceFilter",
    "DivideAndConquer",
    "FlTrust",
    "Flame",
    "FoolsGold",
    "GeometricMedian",
    "Krum",
    "MultiKrum",
    "RobustAggregation",
    "RobustLearningRate",
    "Rule",
    "TrimmedMean",
]
