"""The model of a stored run, for other data: ``fedpriv.load`` and the command ``fedpriv evaluate``.

This module imports nothing heavy: torch and Hydra are imported once a run is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.flags import Command, PathParam, flag, switch, table_flag

if TYPE_CHECKING:
    import numpy as np
    from omegaconf import DictConfig
    from torch import Tensor, nn

    from fedpriv.data.base import Dataset
    from fedpriv.data.records import Records

_EXAMPLES = """\b
examples:
  fedpriv evaluate outputs/<run folder>                      the run's own test records
  fedpriv evaluate outputs/<run folder> --data new.csv       other records of the same columns
  fedpriv evaluate outputs/<run folder> --dataset fashion_mnist --json
"""
_BATCH = 250


@dataclass(frozen=True)
class LoadedRun:
    """The model of a stored run, and how its inputs are encoded.

    Attributes:
        model: The trained module in evaluation mode, on the CPU.
        dataset: The data set of the run, which encodes records as the run did.
        config: The configuration of the run.

    Example:
        >>> import fedpriv
        >>> config = fedpriv.compose(["algorithm=fedavg", "rounds=2", "runtime.progress=none"])
        >>> loaded = fedpriv.load(fedpriv.run(config).folder)
        >>> loaded.encoding
        'float32 [n, 1, 8, 8]: pixels / 16, each image minus its mean and divided by its standard deviation'
    """

    model: nn.Module
    dataset: Dataset
    config: DictConfig

    @property
    def encoding(self) -> str:
        """Description of how a record becomes an input of the model."""
        shape = ", ".join(map(str, self.dataset.input_shape))
        return f"float32 [n, {shape}]: {self.dataset.encoding}"

    def predict(self, x: Any) -> np.ndarray:
        """Return the predicted class of each record [n]; for ``dataset=csv`` its label.

        Args:
            x: Encoded inputs [n, …]; or, for ``dataset=csv``, a file or data frame with the columns of the
                run's inputs.

        Raises:
            FedprivError: The inputs have another shape, or the table is not as the run declares it.
        """
        import numpy as np
        import torch

        if isinstance(x, str | Path) or hasattr(x, "columns"):
            x = self._table(x, labelled=False).inputs
        inputs: Tensor = torch.as_tensor(x)
        if inputs.shape[1:] != tuple(self.dataset.input_shape):
            raise ConfigError("inputs", list(inputs.shape), self.encoding)
        inputs = inputs.float() if self.dataset.vocabulary_size is None else inputs
        with torch.inference_mode():
            outputs = torch.cat([self.model(part) for part in inputs.split(_BATCH)])
        # One score stands for two classes.
        classes = outputs[:, 0] > 0 if outputs.shape[1:] == (1,) else outputs.argmax(-1)
        return np.array(self.dataset.class_names)[classes.long().numpy()]

    def evaluate(self, inputs: Tensor, targets: Tensor) -> dict[str, Any]:
        """Return loss and accuracy on records, also of each class.

        Args:
            inputs: Encoded inputs [n, …].
            targets: Classes [n], or next tokens [n, L] of a language model.
        """
        from fedpriv.engine import FlatModel

        model = FlatModel(self.model)
        loss, accuracy = model.evaluate(inputs, targets)
        classes = []
        for number, name in enumerate(self.dataset.class_names if targets.dim() == 1 else ()):
            chosen = targets == number
            right = model.evaluate(inputs[chosen], targets[chosen])[1] if chosen.any() else None
            classes.append({"class": name, "records": int(chosen.sum()), "accuracy": right})
        return {"records": len(targets), "loss": loss, "accuracy": accuracy, "classes": classes}

    def records(self, data: str | None = None, dataset: str | None = None) -> Records:
        """Return labelled records, encoded as the run did.

        Args:
            data: File with the columns of the run's table (``dataset=csv``).
            dataset: Name of a data set with inputs of this shape, for its test records.

        Raises:
            FedprivError: The records cannot be read, or are others than the model reads.
        """
        from fedpriv.common.config import compose
        from fedpriv.experiment.build import make_dataset

        if data is not None:
            return self._table(data)
        chosen: Any = self.dataset
        if dataset is not None:
            config, own = self.config.copy(), self.config.dataset
            other = compose([f"dataset={dataset}"]).dataset
            shared = [key for key in ("normalize", "pixels") if key in own and key in other]
            config.dataset = {**other, **{key: own[key] for key in shared}}
            chosen = make_dataset(config, "record")
            for fact in ("input_shape", "classes", "vocabulary_size"):
                needed, found = getattr(self.dataset, fact), getattr(chosen, fact)
                if needed != found:
                    raise ConfigError(
                        "--dataset", dataset, f"a data set with {fact} {needed}", f"it has {found}"
                    )
        return chosen.load().test.widened()

    def _table(self, rows: Any, labelled: bool = True) -> Records:
        from fedpriv.data.own_table import OwnTable

        table = self.dataset.without_features()
        if isinstance(table, OwnTable):
            return table.read(rows, labelled)
        raise ConfigError(f"rows of a table need a run with dataset=csv, this one has {table.name}")


def load(run: str | Path, *, allow: Collection[str] = ()) -> LoadedRun:
    """Return the model of a stored run, to predict with it.

    Nothing in the folder is executed. Training records are not read, but for the table of ``dataset=csv``,
    whose header names the order of the inputs.

    Args:
        run: The run folder.
        allow: Modules outside fedpriv that the configuration may name, as for ``--allow``.

    Raises:
        FedprivError: The folder holds no run or no model, or names code outside fedpriv that is not allowed.

    Example:
        >>> import fedpriv, torch
        >>> config = fedpriv.compose(["algorithm=fedavg", "rounds=1", "runtime.progress=none"])
        >>> loaded = fedpriv.load(fedpriv.run(config).folder)
        >>> loaded.predict(torch.zeros(2, 1, 8, 8)).shape, loaded.model.training
        ((2,), False)
    """
    from fedpriv.experiment.build import make_dataset
    from fedpriv.experiment.consent import stored_configuration
    from fedpriv.experiment.instantiate import first_line, instantiate
    from fedpriv.models.fit import build_for, seeded_for
    from fedpriv.store.stored_run import StoredRun

    stored = StoredRun(run)
    config = stored_configuration(stored, allow, seeds=False)
    stored.files.refuse_links()
    dataset = make_dataset(config, instantiate(config, "algorithm").unit)
    with seeded_for(str(config.model._target_), config.seed):
        factory = instantiate(config, "model")
    model = build_for(factory, dataset, config.seed)
    try:
        model.load_state_dict(stored.model("cpu"))
    except (RuntimeError, TypeError, AttributeError) as error:
        raise FedprivError(
            f"{stored.files.model} does not fit the model of config.yaml: {first_line(error)}"
        ) from None
    return LoadedRun(model.eval(), dataset, config)


@click.command(
    cls=Command,
    short_help="accuracy of a run's model on other data, also of each class",
    epilog=_EXAMPLES,
)
@click.argument("run", metavar="RUN", type=PathParam())
@flag("--data", "FILE", "of a run with dataset=csv: a file of the same columns", PathParam())
@flag("--dataset", "NAME", "the test records of another data set, with inputs of the same shape")
@switch("--json", "print JSON instead of a table")
@flag(
    "--allow",
    "MODULE",
    "code outside fedpriv that config.yaml may name; may be given again",
    multiple=True,
)
@table_flag
def evaluate(
    run: str, data: str | None, dataset: str | None, allow: tuple[str, ...], **shown: bool
) -> int:
    """Measure the model of a run on other data: loss and accuracy, and the accuracy on each class.

    Without --data and --dataset these are the run's own test records. The records are encoded as the run
    encoded its own. Nothing is written. No ε covers what is told of them: on private records an accuracy is a
    release that nothing charges.
    """
    if data is not None and dataset is not None:
        raise ConfigError("--dataset", dataset, "left out with --data")
    from fedpriv.common.console import console
    from fedpriv.store.table import Column, Table

    loaded = load(run, allow=allow)
    records = loaded.records(data, dataset)
    facts = loaded.evaluate(records.inputs, records.targets)
    if shown["json"]:
        print(json.dumps({"run": run, **facts}, indent=2, default=str))
        return 0
    shares = Column("accuracy", right=True, shown="{:.4f}".format)
    table = Table(run, ("class", Column("records", right=True), shares))
    for row in facts["classes"]:
        table.add(*row.values())
    table.add("all", facts["records"], facts["accuracy"])
    console().print(table)
    console().print(
        f"loss {facts['loss']:.4f}; no ε covers what is told of these records", style="dim"
    )
    return 0
