"""The versioned sets of attacks under which the leaderboard measures a worst case.

A version is never changed: its accuracies stay comparable. Other attacks or settings make a new version.
Version 1 has one fifth of the clients attack in every round from the first. They know what the trust model
shows. Where they may send what they like, they neither clip nor add noise.

Every setting is written out, so that a version does not follow the defaults of ``conf/attack``.
"""

from __future__ import annotations

from collections.abc import Mapping

_OF_VERSION_1 = (
    "attack.attackers=null",
    "attack.attacker_fraction=0.2",
    "attack.participation=sampled",
    "attack.first_round=1",
    "attack.every=1",
    "attack.knows=null",
    "attack.dp_steps=skip",
    "attack.local_epochs=5",
    "attack.batch_size=20",
    "attack.learning_rate=0.1",
)
_SEARCH = ("attack.evaluations=20", "attack.step=10", "attack.ratio=0.8")

ATTACK_SETS: Mapping[int, Mapping[str, tuple[str, ...]]] = {
    1: {
        "sign_flip": ("attack=sign_flip", "attack.scale=1", *_OF_VERSION_1),
        "label_reversal": ("attack=label_reversal", *_OF_VERSION_1),
        "alie": ("attack=alie", "attack.tau=1.5", *_OF_VERSION_1),
        "ipm": ("attack=ipm", "attack.tau=2", *_OF_VERSION_1),
        "min_max": ("attack=min_max", "attack.perturbation=std", *_OF_VERSION_1),
        "alie_optimal": ("attack=alie_optimal", *_SEARCH, *_OF_VERSION_1),
        "ipm_optimal": ("attack=ipm_optimal", *_SEARCH, *_OF_VERSION_1),
    }
}
"""Of each version, the attacks with the overrides that choose them."""
LATEST = max(ATTACK_SETS)
