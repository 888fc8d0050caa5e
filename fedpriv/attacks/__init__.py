"""Malicious clients: the records that they train on, and the uploads that they send.

Begin with ``malicious`` (the attackers of a run, and what they see of each round) and ``backdoor`` (the
options of the group ``attack``). ``image_triggers`` and ``text_triggers`` mark records. ``canaries``,
``canary_scores``, ``crafted`` and ``mislabelled`` plant canaries and score them, for audits of ε.
"""

from fedpriv.attacks.backdoor import Backdoor
from fedpriv.attacks.image_triggers import LabelFlip, PixelPattern, Semantic
from fedpriv.attacks.text_triggers import Sentiment, Words

__all__ = ["Backdoor", "LabelFlip", "PixelPattern", "Semantic", "Sentiment", "Words"]
