"""Malicious clients: what they train on and what they send instead of an honest update."""

from fedpriv.attacks.backdoor import Backdoor
from fedpriv.attacks.image_triggers import LabelFlip, PixelPattern, Semantic
from fedpriv.attacks.text_triggers import Sentiment, Words

__all__ = ["Backdoor", "LabelFlip", "PixelPattern", "Semantic", "Sentiment", "Words"]
