"""The state that parts of the user's own keep from round to round, for the checkpoint.

Other modules save the state of clipper, noise schedule, mechanism, optimiser, server step, rule and
attackers. This module saves that of any other part that a user may write (algorithm, work, uploads, attack,
trigger, accountant): it calls ``state_dict``, and ``load_state_dict`` when the run is resumed. A part whose
attributes change over the rounds but which offers no state would begin anew in a resumed run. Such
attributes are noted in the checkpoint, and named when the run is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedpriv.algorithms.run_context import MaliciousParticipants
from fedpriv.algorithms.trainer import Trainer
from fedpriv.common.attributes import PACKAGE, attribute_digests, changed_attributes, is_own
from fedpriv.common.errors import ConfigError
from fedpriv.common.saved import Saved
from fedpriv.engine import FlatModel
from fedpriv.experiment.parts import Parts


class OwnState:
    """The state of the user's own parts in one run.

    It is made when the run begins, and notes what the attributes are then.

    Args:
        parts: The parts of the run.
        trainer: The started algorithm.
        model: The model, whose weights belong to no part.
        attackers: The simulated attackers, or None.
    """

    def __init__(
        self,
        parts: Parts,
        trainer: Trainer,
        model: FlatModel,
        attackers: MaliciousParticipants | None = None,
    ):
        computation, attack = trainer.computation, parts.attack
        rule = trainer.context.rule
        saved: dict[str, Any] = {
            "algorithm": parts.algorithm,
            "work": computation,
            "uploads": computation.uploads,
            "attack": attack,
            "attack.trigger": None if attack is None else attack.trigger,
            "accountant": parts.accountant,
        }
        elsewhere = {
            "clipper": parts.clipper,
            "noise_schedule": parts.noise_schedule,
            "mechanism": parts.mechanism,
            "trainer": trainer,
            "server step": trainer.server,
            "optimizer": trainer.optimizer,
            "attackers": attackers,
            "rule": None if rule is None else rule.rule,
        }
        self._saved = {name: part for name, part in saved.items() if _is_part(part)}
        every = {**self._saved, **elsewhere}
        self._silent = {n: p for n, p in every.items() if _is_part(p) and not _offers_state(p)}
        # A part may refer to the weights, which change in every round and are saved with the training.
        tensors = (model.flat, *model.module.state_dict().values())
        self._weights = {
            tensor.untyped_storage().data_ptr()
            for tensor in tensors
            if hasattr(tensor, "untyped_storage")
        }
        # Attributes are compared by digest, as they may be large or refer to one another.
        self._before = {name: self._digests(part) for name, part in self._silent.items()}

    def state_dict(self) -> dict[str, object]:
        """Return the state of each part that has one, by name.

        The entry ``forgotten`` names the attributes that changed in parts which offer no state.
        """
        states = {
            name: state
            for name, part in self._saved.items()
            if _offers_state(part) and (state := part.state_dict())
        }
        forgotten = {
            f"{name} ({type(part).__name__})": changed
            for name, part in self._silent.items()
            if (changed := changed_attributes(self._before[name], self._digests(part)))
        }
        return {**states, **({"forgotten": forgotten} if forgotten else {})}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Give each part its state back. Raise ConfigError where a part has no ``load_state_dict``."""
        saved: Mapping[str, Any] = state
        for name, part in self._saved.items():
            if name not in state:
                continue
            load = getattr(part, "load_state_dict", None)
            if load is None:
                raise ConfigError(
                    f"resume: {name} ({type(part).__name__}) has state_dict and no load_state_dict"
                )
            load(saved[name])

    def _digests(self, part: object) -> dict[str, str]:
        """Return digests of a part's attributes, without those that belong to classes of fedpriv."""
        digests = attribute_digests(part, self._weights)
        return {name: digest for name, digest in digests.items() if not _is_of_fedpriv(part, name)}


def forgotten_words(state: Mapping[str, Any]) -> str | None:
    """Return words on what the ``own`` state of a checkpoint says was not saved; None if all was saved."""
    forgotten = state.get("forgotten")
    if not forgotten:
        return None
    named = "; ".join(f"{part}: {', '.join(names)}" for part, names in forgotten.items())
    return (
        f"attributes that changed over the rounds were not saved ({named}); let state_dict return what the "
        "next round needs, nothing where that is nothing, and load_state_dict take it back"
    )


def _is_part(part: object) -> bool:
    return part is not None and is_own(part)


def _offers_state(part: object) -> bool:
    """Return whether a class of the user's own says what is saved, and not only a base class of fedpriv."""
    offers = {"state_dict", "saved_attributes"}
    home = next((kind for kind in type(part).__mro__ if offers & vars(kind).keys()), None)
    return home is not None and not home.__module__.startswith(PACKAGE)


def _is_of_fedpriv(part: object, name: str) -> bool:
    """Return whether an attribute belongs to a class of fedpriv that a part extends.

    Such a class has methods that use the private attribute, or a ``state_dict`` that saves the attribute.
    """
    if isinstance(part, Saved) and name in part.saved_attributes.values():
        return True
    for kind in type(part).__mro__:
        for method, value in vars(kind).items() if kind.__module__.startswith(PACKAGE) else ():
            used = getattr(getattr(value, "__code__", None), "co_names", ())
            if name in used and (name.startswith("_") or method == "state_dict"):
                return True
    return False
