"""Malicious clients: the records that they train on, and the uploads that they send.

Begin with ``base`` (what all options of the group ``attack`` share) and ``attackers`` (the attackers of a
run). ``untargeted`` has attacks that spoil the model, forged by ``forgers``. ``backdoor`` has those that
teach a trigger, with the attackers of ``malicious``; ``lasting`` those whose attackers remember, which are in
``remembering``. ``image_triggers`` and ``text_triggers`` mark records. ``canaries``, ``canary_scores``,
``crafted`` and ``mislabelled`` plant canaries and score them, for audits of ε.
"""

from fedpriv.attacks.backdoor import Backdoor
from fedpriv.attacks.base import Attack
from fedpriv.attacks.image_triggers import (
    DistributedPattern,
    EdgeCases,
    LabelFlip,
    PixelPattern,
    Semantic,
)
from fedpriv.attacks.lasting import A3fl, Neurotoxin
from fedpriv.attacks.text_triggers import Sentiment, Words
from fedpriv.attacks.untargeted import (
    Alie,
    AlieOptimal,
    Gaussian,
    Ipm,
    IpmOptimal,
    LabelReversal,
    Mimic,
    MinMax,
    MinSum,
    SignFlip,
    Untargeted,
)

__all__ = [
    "A3fl",
    "Alie",
    "AlieOptimal",
    "Attack",
    "Backdoor",
    "DistributedPattern",
    "EdgeCases",
    "Gaussian",
    "Ipm",
    "IpmOptimal",
    "LabelFlip",
    "LabelReversal",
    "Mimic",
    "MinMax",
    "MinSum",
    "Neurotoxin",
    "PixelPattern",
    "Semantic",
    "Sentiment",
    "SignFlip",
    "Untargeted",
    "Words",
]
