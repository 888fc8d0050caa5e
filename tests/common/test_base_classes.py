"""Parts of users that extend no base class, and attributes with a default."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass

from fedpriv.common.base_classes import completed, fact


class Base(ABC):
    limit = 3

    @fact
    def size(self) -> int:
        """The size."""
        return 2 * self.limit

    @abstractmethod
    def load(self): ...

    def prepare(self):
        return "prepared"


class Own:
    def load(self):
        return "loaded"


def test_what_a_part_lacks_is_added_and_what_it_has_is_left():
    part = Own()
    part.limit = 5
    found = completed(part, Base)
    assert found is part
    assert (part.limit, part.size, part.load(), part.prepare()) == (5, 10, "loaded", "prepared")
    assert isinstance(part, Base)
    assert not isinstance(Own(), Base)
    assert vars(part) == {"limit": 5}


def test_the_class_keeps_its_name_and_is_made_once():
    one, other = completed(Own(), Base), completed(Own(), Base)
    assert type(one) is type(other)
    assert (type(one).__name__, type(one).__module__) == ("Own", __name__)
    assert type(one).__qualname__ == Own.__qualname__
    assert copy.deepcopy(one).prepare() == "prepared"


def test_a_part_of_the_base_class_is_left_as_it_is():
    class Part(Base):
        size = 7

        def load(self): ...

    part = Part()
    assert type(completed(part, Base)) is Part
    assert part.size == 7


def test_what_a_part_answers_for_another_one_stays():
    class Delegating:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

    inner = completed(Own(), Base)
    inner.limit = 11
    assert completed(Delegating(inner), Base).size == 22


@dataclass(frozen=True)
class Frozen:
    limit: int

    def load(self): ...


class Slots:
    __slots__ = ("limit",)

    def load(self): ...


def test_frozen_parts_and_parts_with_slots_are_completed():
    assert completed(Frozen(4), Base).size == 8
    part = Slots()
    part.limit = 1
    assert completed(part, Base).size == 2


def test_a_fact_gives_way_to_an_attribute_a_property_and_one_of_the_object():
    class Property(Base):
        @property
        def size(self):
            return 1

        def load(self): ...

    assert Property().size == 1
    part = type("Plain", (Base,), {"load": lambda self: None})()
    part.size = 0
    assert part.size == 0
    assert Base.size.__doc__ == "The size."
