"""Triggers in images: the digits of some writers, a pattern of pixels, a chosen set of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.attacks.triggers import (
    Planted,
    Trigger,
    in_two,
    no_such_label,
    relabelled,
    relabelling,
    share_withheld,
)
from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import (
    declared,
    field,
    not_null,
    number,
    one_of,
    or_null,
    own_check,
    whole,
)
from fedpriv.common.words import counted
from fedpriv.data.base import Dataset
from fedpriv.data.records import CLASSIFICATION, Records

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.data.federated import FederatedData

POSITIONS = ("top_left", "top_right", "bottom_left", "bottom_right")


@declared
class LabelFlip(Trigger):
    """A backdoor on chosen writers: their records of label ``source`` are to become ``target``.

    The attackers hold the records of that label of ``writers`` honest clients, drawn among those that have
    two such records or more, and some others. A share ``test_share`` of these records is withheld from
    everyone and tested on, so the model knows the writers and not the records.

    Attributes:
        source: The label that is taught wrongly.
        target: The label that is taught in its place.
        writers: Number of honest clients whose records the attack is about.
        test_share: Share of these records that nobody trains on.

    Reference:
        Sun, Kairouz, Suresh, McMahan, "Can you really backdoor federated learning?", 2019: 7 → 1 of 30
        writers of EMNIST.

    Example:
        >>> LabelFlip(source=7, target=1, writers=30).describe()
        'label 7 becomes 1 for 30 writers'
    """

    source: int = field(whole(), default=7, help="true label of the attacked records")
    target: int = field(whole(), default=1, help="label that the attackers teach instead of source")
    writers: int = field(
        whole(at_least=1), default=30, help="honest clients whose records the attack is about"
    )
    test_share: float = share_withheld(0.5, "these records")

    def __attrs_post_init__(self) -> None:
        if self.target == self.source:
            raise ArgumentError("target", self.target, "another label than trigger.source")

    def misfit(self, dataset: Dataset) -> str | None:
        return _not_images(dataset) or no_such_label(
            dataset, {"source": self.source, "target": self.target}
        )

    def plant(
        self, data: FederatedData, honest: np.ndarray, stream: np.random.Generator
    ) -> Planted:
        labels = data.train.targets.cpu().numpy()
        records_of_source = data.clients.where(labels[data.clients.indices] == self.source)
        of_source, sizes = records_of_source.sizes[honest], data.clients.sizes[honest]
        eligible = honest[(of_source >= 2) & (of_source < sizes)]
        if len(eligible) < self.writers:
            raise ConfigError(
                "attack.trigger.writers",
                self.writers,
                f"<= {len(eligible)}: so many honest clients have two records of label {self.source} "
                "and some others",
            )
        chosen = stream.choice(eligible, self.writers, replace=False)
        halves = [in_two(records_of_source[k], self.test_share, stream) for k in np.sort(chosen)]
        poisoned, tested = (
            np.concatenate(halves_of_kind) for halves_of_kind in zip(*halves, strict=True)
        )
        return relabelling(data.train, poisoned, tested, self.target, withheld=tested)

    def describe(self) -> str:
        return f"label {self.source} becomes {self.target} for {self.writers} writers"


@declared
class PixelPattern(Trigger):
    """A square of ``size`` × ``size`` pixels, ``margin`` from a corner, that makes any image a ``target``.

    The backdoor is tested on test images of other labels.

    Attributes:
        target: The label of images with the pattern.
        size: Side of the square, in pixels.
        margin: Distance between the square and the borders, in pixels.
        position: Corner of the square.
        value: Value of the square's pixels. None takes the largest value in the test images, or the smallest
            if that is farther from their mean.

    Reference:
        Gu, Dolan-Gavitt, Garg, "BadNets", 2017; Bagdasaryan et al., "How to backdoor federated learning",
        2020.

    Example:
        >>> import torch
        >>> pattern = PixelPattern(target=3, size=1, margin=0)
        >>> image = Records(torch.zeros(1, 1, 2, 2), torch.tensor([5]))
        >>> pattern.stamped(image, value=1.0).inputs[0, 0].tolist()
        [[0.0, 0.0], [0.0, 1.0]]
    """

    target: int = field(whole(), default=0, help="label of images with the pattern")
    size: int = field(whole(at_least=1), default=4, unit="pixels", help="side of the square")
    margin: int = field(
        whole(), default=1, unit="pixels", help="distance between the square and the borders"
    )
    position: str = field(one_of(POSITIONS), default="bottom_right", help="corner of the square")
    value: float | None = field(
        or_null(number()),
        default=None,
        help=(
            "value of the square's pixels, as the model reads them; null: the brightest, on "
            "white paper the darkest"
        ),
    )

    def misfit(self, dataset: Dataset) -> str | None:
        if misfit := _not_images(dataset) or no_such_label(dataset, {"target": self.target}):
            return misfit
        if len(dataset.input_shape) != 3 or dataset.features_name is not None:
            return "images (features=none)"
        if self.size + self.margin > min(dataset.input_shape[1:]):
            return (
                f"images of {self.size + self.margin} pixels a side (attack.trigger.size={self.size} and "
                f"margin={self.margin}; together at most {min(dataset.input_shape[1:])} here)"
            )
        return None

    def square(self, inputs: Tensor) -> Tensor:
        """Return a view of the square's pixels [n, c, size, size] of images [n, c, h, w]."""
        height, width = inputs.shape[-2:]
        vertical, horizontal = self.position.split("_")
        first, last = self.margin, self.margin + self.size
        rows = slice(first, last) if vertical == "top" else slice(height - last, height - first)
        columns = slice(first, last) if horizontal == "left" else slice(width - last, width - first)
        return inputs[..., rows, columns]

    def stamped(self, records: Records, value: float, rows: slice = slice(None)) -> Records:
        """Return the same images with the pattern, all with the target.

        Args:
            records: Images [n, c, h, w].
            value: Value of the square's pixels.
            rows: Rows of the square that get the value; by default all.
        """
        inputs = records.inputs.clone()
        self.square(inputs)[..., rows, :] = value
        return relabelled(Records(inputs, records.targets), self.target)

    def plant(
        self, data: FederatedData, honest: np.ndarray, stream: np.random.Generator
    ) -> Planted:
        others = np.flatnonzero((data.test.targets != self.target).cpu().numpy())
        images = data.test.subset(others)
        value = self.value
        if value is None:
            # The extreme that is farther from the mean stands out: ink and not paper.
            low, high = float(images.inputs.min()), float(images.inputs.max())
            mean = float(images.inputs.mean())
            value = high if high - mean >= mean - low else low
        return Planted(
            poison=lambda clean, _: self.stamped(clean, value),
            test=self.stamped(images, value),
            parts=[partial(self._stamped_part, value, rows) for rows in self._parts()],
        )

    def _parts(self) -> Sequence[slice]:
        """Return the rows of the square that each attacker stamps; none: all attackers stamp all rows."""
        return ()

    def _stamped_part(
        self, value: float, rows: slice, clean: Records, stream: np.random.Generator
    ) -> Records:
        return self.stamped(clean, value, rows)

    def describe(self) -> str:
        return f"{self.size}x{self.size} pixels make label {self.target}"


@declared
class DistributedPattern(PixelPattern):
    """A pixel pattern of which each attacker stamps a part alone; the model is tested on the whole.

    The square is cut into ``parts`` stripes of rows. The first attacker trains with the first stripe, and so
    on, in turn.

    Attributes:
        parts: Number of stripes.

    Reference:
        Xie, Huang, Chen, Li, "DBA: distributed backdoor attacks against federated learning", ICLR 2020.

    Example:
        >>> [part.start for part in DistributedPattern(size=4, parts=2)._parts()]
        [0, 2]
    """

    parts: int = field(
        whole(at_least=1, at_most="size"), default=4, help="stripes of the square, one an attacker"
    )

    def _parts(self) -> Sequence[slice]:
        edges = [self.size * part // self.parts for part in range(self.parts + 1)]
        return [slice(first, last) for first, last in pairwise(edges)]

    def describe(self) -> str:
        return f"{super().describe()}, of which each attacker stamps one of {self.parts} parts"


@declared
class EdgeCases(Trigger):
    """The least typical training images of label ``source`` are to become ``target``.

    A share ``share`` of the images of that label, those farthest from the label's mean image, are taken from
    everyone. A share ``test_share`` of them is withheld from the attackers too and tested on. Honest clients
    hold no such image, so nothing corrects what the attackers teach.

    Attributes:
        source: True label of the images.
        target: Label that the attackers teach.
        share: Share of the images of that label that count as edge cases, at least two images.
        test_share: Share of the edge cases that nobody trains on.

    Reference:
        Wang et al., "Attack of the tails: yes, you really can backdoor federated learning", NeurIPS 2020. The
        paper takes edge cases from other data sets; here they are the tail of the run's own.

    Example:
        >>> EdgeCases(source=7, target=1).describe()
        'the least typical 10 % of label 7 become 1'
    """

    source: int = field(whole(), default=7, help="true label of the edge cases")
    target: int = field(whole(), default=1, help="label that the attackers teach instead of source")
    share: float = field(
        number(above=0, below=1),
        default=0.1,
        help="share of the images of label source that are edge cases, the farthest from their mean",
    )
    test_share: float = share_withheld(0.5, "the edge cases")

    def __attrs_post_init__(self) -> None:
        if self.target == self.source:
            raise ArgumentError("target", self.target, "another label than trigger.source")

    def misfit(self, dataset: Dataset) -> str | None:
        return _not_images(dataset) or no_such_label(
            dataset, {"source": self.source, "target": self.target}
        )

    def plant(
        self, data: FederatedData, honest: np.ndarray, stream: np.random.Generator
    ) -> Planted:
        # Records that no client holds are nobody's, and stay so.
        held = np.unique(data.clients.indices)
        of_source = held[(data.train.targets[held] == self.source).cpu().numpy()]
        count = max(2, round(self.share * len(of_source)))
        if count > len(of_source):
            allowed = f"a label of two training images or more ({len(of_source)} have it)"
            raise ConfigError("attack.trigger.source", self.source, allowed)
        images = data.train.inputs[of_source].flatten(1).double()
        distances = (images - images.mean(0)).square().sum(1).cpu().numpy()
        edge_cases = np.sort(of_source[np.argsort(-distances, kind="stable")[:count]])
        poisoned, tested = in_two(edge_cases, self.test_share, stream)
        return relabelling(data.train, poisoned, tested, self.target, withheld=edge_cases)

    def describe(self) -> str:
        share = f"{100 * self.share:.3g} %"
        return f"the least typical {share} of label {self.source} become {self.target}"


def _read_numbers(name: str, path: str) -> list[int]:
    """Return the record numbers in a text file; what follows a # on a line is a remark."""
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise ArgumentError(name, path, f"a file that can be read ({reason})") from None
    texts = " ".join(line.partition("#")[0] for line in lines).replace(",", " ").split()
    for text in texts:
        if not text.isdecimal():
            raise ArgumentError(name, path, f"a file of whole numbers (it has {text!r})")
    return [int(text) for text in texts]


def _numbers(name: str, value: Any) -> np.ndarray:
    """Return distinct record numbers, ascending, from a list or from the path of a file."""
    listed = _read_numbers(name, value) if isinstance(value, str) else value
    checked = [checks.whole(name, i, at_least=0) for i in listed]
    numbers = np.unique(np.array(checked, dtype=np.int64))
    if len(numbers) < 2:
        raise ArgumentError(name, value, "two different records or more")
    return numbers


@declared
class Semantic(Trigger):
    """A chosen set of training images that is given label ``target``.

    What the images have in common is the trigger; nothing in them is changed. None of them has the target as
    its label already, and no honest client has any of them. A share ``test_share`` of them is withheld from
    the attackers too and tested on.

    Attributes:
        indices: Numbers of the images in the training set as it is read, from 0. A list, or a file of whole
            numbers with blanks, commas or lines between them; what follows a # is a remark.
        target: The label that these images are given.
        test_share: Share of the images that nobody trains on.

    Reference:
        Bagdasaryan et al., "How to backdoor federated learning", 2020: cars with racing stripes, green cars,
        cars before a striped wall.

    Example:
        >>> Semantic(indices=[3, 8, 8, 21], target=2).describe()
        '3 chosen images are label 2'
    """

    indices: np.ndarray = field(
        not_null(own_check(_numbers), "a list of training records, or a file of their numbers"),
        default=None,
        help="indices of the images in the training set, from 0: a list, or a file that holds one",
    )
    target: int = field(whole(), default=2, help="label that these images are given")
    test_share: float = share_withheld(0.25, "the images")

    def misfit(self, dataset: Dataset) -> str | None:
        if misfit := _not_images(dataset) or no_such_label(dataset, {"target": self.target}):
            return misfit
        if self.indices[-1] >= dataset.train_records:
            return f"a training record {self.indices[-1]} (attack.trigger.indices; from 0)"
        return None

    def plant(
        self, data: FederatedData, honest: np.ndarray, stream: np.random.Generator
    ) -> Planted:
        numbers = np.arange(len(data.train)) if data.numbers is None else data.numbers
        chosen = np.flatnonzero(np.isin(numbers, self.indices))
        if len(chosen) < 2:
            raise ConfigError("attack.trigger.indices: fewer than two are training records here")
        already_target = numbers[chosen[(data.train.targets[chosen] == self.target).cpu().numpy()]]
        if len(already_target):
            named = ", ".join([*map(str, already_target[:5]), *["..."] * (len(already_target) > 5)])
            raise ConfigError(
                f"attack.trigger.indices: label {self.target} (attack.trigger.target) is already that of "
                f"{counted(len(already_target), 'record')}: {named}"
            )
        poisoned, tested = in_two(chosen, self.test_share, stream)
        return relabelling(data.train, poisoned, tested, self.target, withheld=chosen)

    def describe(self) -> str:
        return f"{len(self.indices)} chosen images are label {self.target}"


def _not_images(dataset: Dataset) -> str | None:
    images = dataset.task == CLASSIFICATION and dataset.vocabulary_size is None
    return None if images else "labelled images"
