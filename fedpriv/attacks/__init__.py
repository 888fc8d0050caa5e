"""Malicious clients: the records that they train on, and the uploads that they send.

Begin with ``base`` (what all options of the group ``attack`` share) and ``attackers`` (the attackers of a
run). ``untargeted`` has attacks that spoil the model, forged by ``forgers``. ``backdoor`` has those that
teach a trigger, with the attackers of ``malicious``. ``image_triggers`` and ``text_triggers`` mark records.
``canaries``, ``canary_scores``, ``crafted`` and ``mislabelled`` plant canaries and score them, for audits of
ε.
"""

from fedpriv.attacks.backdoor import Backdoor
from fedpriv.attacks.base import Attack
from fedpriv.attacks.image_triggers import LabelFlip, PixelPattern, Semantic
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
    "Alie",
    "AlieOptimal",
    "Attack",
    "Backdoor",
    "Gaussian",
    "Ipm",
    "IpmOptimal",
    "LabelFlip",
    "LabelReversal",
    "Mimic",
    "MinMax",
    "MinSum",
    "PixelPattern",
    "Semantic",
    "Sentiment",
    "SignFlip",
    "Untargeted",
    "Words",
]
