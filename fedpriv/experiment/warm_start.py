"""The warm start: plain training of the initial weights before round 1, as ``warm_start`` asks for.

Trained on the public validation split, the initial weights follow from public records alone, so no ε changes.
Trained on the clients' records without noise, they reveal these records: then no finite ε is sound. The
second kind is for simulations in which a trained model is attacked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.common import checks
from fedpriv.common.console import console
from fedpriv.common.errors import ArgumentError, ConfigError, did_you_mean
from fedpriv.common.words import counted

if TYPE_CHECKING:
    from fedpriv.algorithms.run_context import RunContext

PUBLIC, CLIENTS = "public", "clients"
EPOCHS, BATCH_SIZE, LEARNING_RATE = 5, 50, 0.1
NOT_AUDITED = "the first weights were trained on the records of all clients without noise"


@dataclass(frozen=True)
class WarmStart:
    """The training of the initial weights before round 1.

    Attributes:
        records: ``public`` for the public validation split, ``clients`` for the records of all clients.
        epochs: Number of passes over these records.
        batch_size: Number of records of a step.
        learning_rate: Learning rate of plain SGD.
    """

    records: str
    epochs: int
    batch_size: int
    learning_rate: float

    @property
    def on_clients(self) -> bool:
        """True if the initial weights depend on records of clients, without noise."""
        return self.records == CLIENTS

    def describe(self) -> str:
        """Describe the warm start for the plan."""
        records = "the public validation records"
        if self.on_clients:
            records = "the records of all clients, without clipping and noise"
        return (
            f"initial weights trained on {records}: {counted(self.epochs, 'epoch')}, batches of "
            f"{self.batch_size}, learning rate {self.learning_rate:g}"
        )


def warm_start_of(node: Any) -> WarmStart | None:
    """Return the warm start that the section ``warm_start`` of a configuration asks for, or None.

    Raises:
        ArgumentError: A value is not allowed.
        ConfigError: A key is unknown.
    """
    if node is None:
        return None
    if not hasattr(node, "items"):
        raise ArgumentError("warm_start", node, "null, or a section with the key records")
    known = tuple(WarmStart.__dataclass_fields__)
    given = {str(key): value for key, value in node.items() if value is not None}
    for key in map(str, node):
        if key not in known:
            hint = did_you_mean(key, known, "; ")
            raise ConfigError(f"unknown key warm_start.{key}{hint}")
    if "records" not in given:
        for key, value in given.items():
            raise ArgumentError(
                f"warm_start.{key}", value, "null unless warm_start.records is given"
            )
        return None
    return WarmStart(
        records=checks.one_of("warm_start.records", given["records"], (PUBLIC, CLIENTS)),
        epochs=checks.whole("warm_start.epochs", given.get("epochs", EPOCHS), at_least=1),
        batch_size=checks.whole(
            "warm_start.batch_size", given.get("batch_size", BATCH_SIZE), at_least=1
        ),
        learning_rate=checks.number(
            "warm_start.learning_rate", given.get("learning_rate", LEARNING_RATE), above=0
        ),
    )


def begin_warm(warm_start: WarmStart | None, context: RunContext, quiet: bool = True) -> None:
    """Train the model of a new run before its first round.

    Args:
        warm_start: How it is trained; None: it is not.
        context: The run, before its first round.
        quiet: Print nothing; else a line says that the training has begun.

    Raises:
        ConfigError: The weights became nan or infinite.
    """
    original = context.original
    context.original = None  # the records before an attack are needed once
    if warm_start is None:
        return
    from fedpriv.algorithms.warm_start import trained

    if not quiet:
        console().print(f"warm start: {warm_start.describe()}")
    assert original is not None
    records = original.validation
    if warm_start.on_clients:
        records = original.of_clients
    assert records is not None  # else the combination is refused
    weights = trained(
        context, records, warm_start.epochs, warm_start.batch_size, warm_start.learning_rate
    )
    if not bool(weights.isfinite().all()):
        raise ConfigError(
            "warm_start.learning_rate",
            warm_start.learning_rate,
            "smaller: the weights became nan or infinite in the warm start",
        )
    context.model.set(weights)
