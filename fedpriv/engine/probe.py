"""A probe of models that look at a record's neighbours, or remember records: on the engine that trains.

Clipping bounds what a record moves only if its gradient is a function of the record and the weights. A model
is asked for losses, norms and weighted sums of gradients, in lots of several sizes, and refused where

* another record's answer changes by a bit when one record is replaced (huge, not finite, exchanged with
  another one, or with another label) in a lot of the same shape;
* the answers to lot A differ by a bit before and after other lots, whatever it was that remembered them;
* a parameter, a buffer or extra state changes;
* a record's clipped gradient is further from what the record gives alone than 1e-5 of the clip norm.

Records are random. A model that does so only in larger lots, or for records of a certain kind, is not found:
this is a probe and not a proof. For a proof, train with ``isolate_records``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, product

import torch
from torch import Tensor, nn

from fedpriv.common.errors import ConfigError
from fedpriv.engine.flat_model import FlatModel
from fedpriv.engine.interface import Engine
from fedpriv.engine.lots import BLOCK_RECORDS
from fedpriv.engine.make import make_engine
from fedpriv.engine.saved_state import SavedState, same_bits
from fedpriv.engine.stacked import StackedModel
from fedpriv.models.checks import mixing_refusal, with_other_weights

TOLERANCE = 1e-5
"""Distance, in clip norms, of a clipped gradient in a lot from the same record's alone."""
_SMALL = (2, 9, 65)
_THOROUGH = 2**20  # records × parameters up to which every replacement is tried at every place
_VALUES = 2**25  # records × parameters of the largest lot
_CLIENTS = 3
_ROUNDING = 1e-6  # of a sum, where it is computed in another way

Lot = tuple[Tensor, Tensor]
"""Inputs [n, …] and targets [n, …]."""
LotSource = Callable[[int], Lot]
"""A lot of so many records that read no data."""


def lot_sizes(parameters: int, real: Sequence[float], isolated: bool) -> list[int]:
    """Choose the sizes of the lots that a model is probed with.

    Args:
        parameters: Number of parameters, which bounds the largest lot.
        real: Sizes of the run's own lots; each is probed, and twice as much.
        isolated: Whether every record is computed by itself, so that sizes matter less.
    """
    if isolated:
        return list(_SMALL[:2])
    most = max(_SMALL[1], min(BLOCK_RECORDS, _VALUES // max(1, parameters)))
    wanted = [*_SMALL, *(round(size * times) for size in real for times in (1, 2))]
    return sorted({max(2, min(most, size)) for size in wanted})


def refuse_dependent_records(
    module: nn.Module, draw: LotSource, sizes: Sequence[int], engine: str, isolated: bool
) -> None:
    """Raise unless records, and clients that train side by side, are computed as if they were alone.

    Args:
        module: The model, which is left as it is.
        draw: Random lots of a given size, on the CPU.
        sizes: Sizes of the lots.
        engine: Engine of the run: ``auto``, ``fast`` or ``opacus``.
        isolated: Whether the run computes each record with a copy of the model.

    Raises:
        ConfigError: Names what depends on other records, at which size of lot.
    """
    starts = [copy.deepcopy(module)]
    if not isolated:  # else weights open no way from one record to another
        starts.append(with_other_weights(module))
    for start in starts:
        start = start.cpu().train()
        _refuse_first_lot_kept(start, draw, isolated)
        model = FlatModel(copy.deepcopy(start), isolated)
        asked = make_engine(model, engine=engine)
        if _has_record_gradients(asked, draw):
            _probe_records(model, asked, draw, sizes)
            if not isolated:
                _refuse_unlike_alone(start, draw, sizes, engine)
        _probe_clients(FlatModel(copy.deepcopy(start), isolated), draw, sizes)


def _has_record_gradients(engine: Engine, draw: LotSource) -> bool:
    """Return whether the engine can treat the model, which uploads of clients do not need."""
    with _told_as_refusal(2):
        try:
            engine.clipped_sums(*draw(2), torch.zeros(2, dtype=torch.int64), 1, None)
        except ConfigError:
            return False
    return True


def _refuse_first_lot_kept(module: nn.Module, draw: LotSource, isolated: bool) -> None:
    """Ask two copies that began with different lots about a third one: what a first call leaves behind, a
    cache of positions say, may not follow from records."""
    lot = draw(_SMALL[1])
    copies, answers = [], []
    for begins in (lot, _other_lot(lot)):
        model = FlatModel(copy.deepcopy(module), isolated)
        with _told_as_refusal(len(lot[1])):
            model.record_losses(*begins)
            answers.append(model.record_losses(*draw(_SMALL[0])))
        copies.append(model)
    one, other = copies
    if not (same_bits(one.flat, other.flat) and one.is_flat() and other.is_flat()):
        raise mixing_refusal("a parameter was changed by the first records that it sees")
    if (changed := SavedState(other, SavedState(one).beside_weights).change()) is not None:
        raise mixing_refusal(f"{changed} changed by the first records that it sees")
    if not same_bits(*answers):
        raise mixing_refusal("its losses depend on the first records that it sees")


def _other_lot(lot: Lot) -> Lot:
    inputs, targets = lot
    moved = inputs.flip(0)
    return (moved * 30 if inputs.is_floating_point() else moved), targets.flip(0)


def _probe_records(model: FlatModel, engine: Engine, draw: LotSource, sizes: Sequence[int]) -> None:
    """Replace records one at a time, and ask about each lot again after all others."""
    before = {n: _answers(engine, draw(n), None) for n in sizes[:1]}
    saved = SavedState(model)  # with what a first call makes, which follows from no record
    before |= {n: _answers(engine, draw(n), None) for n in sizes[1:]}
    _refuse_change(saved, sizes[-1])
    for n in sizes:
        lot, expected = draw(n), {}
        thorough = n * model.size <= _THOROUGH and not model.isolated
        for place, other in _replaced(lot, thorough):
            if place not in expected:
                expected[place] = _answers(engine, lot, place)
            found = _answers(engine, other, place)
            if not _same_answers(expected[place], found):
                raise _mixes(f"a record changes what the others of a lot of {n} give")
            _refuse_change(saved, n)
    for n in sizes:
        if not _same_answers(before[n], _answers(engine, draw(n), None)):
            raise _mixes(f"a lot of {n} gives something else after other lots than before them")


@dataclass(frozen=True)
class _Answers:
    """Losses, norms and finiteness of all records but one [3, n - 1], and a weighted sum of their gradients
    [d]; ``sound``: whether the one left out is finite too."""

    of_records: Tensor
    sums: Tensor
    sound: bool


def _same_answers(one: _Answers, other: _Answers) -> bool:
    """Return whether all bits agree. An engine sums lots with a record that is not finite in another way,
    so that their sums may be rounded otherwise."""
    if not same_bits(one.of_records, other.of_records):
        return False
    if one.sound and other.sound:
        return same_bits(one.sums, other.sums)
    return bool((one.sums - other.sums).norm() <= _ROUNDING * one.sums.norm())


def _answers(engine: Engine, lot: Lot, left_out: int | None) -> _Answers:
    """Ask about all records of a lot but one."""
    inputs, targets = lot
    n, asked = len(targets), 0
    weights, kept = torch.linspace(0.5, 1.0, n), torch.ones(n, dtype=torch.bool)
    if left_out is not None:
        weights[left_out], kept[left_out] = 0, False

    def factors(norms: Tensor, clients: Tensor) -> Tensor:
        nonlocal asked
        asked += len(norms)
        return weights[asked - len(norms) : asked].to(norms)

    with _told_as_refusal(n):
        result = engine.clipped_sums(inputs, targets, torch.zeros(n, dtype=torch.int64), 1, factors)
    columns = (result.losses, result.norms, result.finite.to(result.losses.dtype))
    of_records = torch.stack([column[kept] for column in columns])
    # adding 0 gives -0 and 0 the same bits
    return _Answers(of_records, result.sums + 0.0, bool(result.finite.all()))


def _replaced(lot: Lot, thorough: bool) -> Iterator[tuple[int, Lot]]:
    """Lots in which one record is replaced: (its place, the lot); ``thorough``: in every way at every place,
    else in each way at one place."""
    inputs, targets = lot
    n = len(targets)
    places = sorted({0, min(9, n - 1), n // 2, n - 1})
    one_place = zip(cycle(places), _REPLACEMENTS, strict=False)
    for place, replace in product(places, _REPLACEMENTS) if thorough else one_place:
        neighbour = (place + 1 + n // 3) % n
        value = replace(inputs[place], inputs[neighbour])
        if value is None:
            continue
        x, y = inputs.clone(), targets.clone()
        x[place] = value
        labelled_otherwise = (targets != targets[place]).reshape(n, -1).any(1).nonzero().flatten()
        if len(labelled_otherwise):
            y[place] = targets[labelled_otherwise[len(labelled_otherwise) // 2]]
        yield place, (x, y)
    for place in places[1:2]:  # two records exchanged
        order = torch.arange(n)
        order[[0, place]] = order[[place, 0]]
        x, y = inputs[order], targets[order]
        x[0], y[0] = inputs[0], targets[0]
        yield place, (x, y)


def _scaled(factor: float) -> Callable[[Tensor, Tensor], Tensor | None]:
    return lambda record, other: record * factor if record.is_floating_point() else None


def _filled(value: float) -> Callable[[Tensor, Tensor], Tensor | None]:
    return lambda record, other: (
        torch.full_like(record, value) if record.is_floating_point() else None
    )


_REPLACEMENTS: tuple[Callable[[Tensor, Tensor], Tensor | None], ...] = (
    _scaled(30.0),
    _filled(float("inf")),
    lambda record, other: other,
    _scaled(-1e4),
    lambda record, other: record,  # with another label
    _filled(float("nan")),
    _filled(1e30),
    lambda record, other: torch.zeros_like(record),
)
"""(inputs of the record, of another one) → inputs in their place; None: not for inputs of this kind."""


def _refuse_unlike_alone(
    module: nn.Module, draw: LotSource, sizes: Sequence[int], engine: str
) -> None:
    """Compare clipped gradients of records in lots and alone: in the model's precision, and where rounding
    is too coarse in float64."""
    for size in sizes:
        distance = _distance_from_alone(module, draw(size), engine)
        if distance > TOLERANCE:
            try:
                inputs, targets = (x.double() if x.is_floating_point() else x for x in draw(size))
                double = copy.deepcopy(module).double()
                distance = _distance_from_alone(double, (inputs, targets), engine)
            except (RuntimeError, ConfigError):  # it knows one precision only
                pass
        if not distance <= TOLERANCE:
            raise _mixes(
                f"the clipped gradient of a record in a lot of {size} is {distance:.1e} clip norms from "
                "what the record gives alone"
            )


def _distance_from_alone(module: nn.Module, lot: Lot, engine: str) -> float:
    """Largest distance of a record's clipped gradient in the lot from that of the record alone, in clip
    norms; the clip norm is the median norm of the lot."""
    asked = make_engine(FlatModel(copy.deepcopy(module)), engine=engine)
    inputs, targets = lot
    n = len(targets)
    norms = _answers(asked, lot, None).of_records[1]
    clip_norm = norms.median().clamp_min(torch.finfo(norms.dtype).tiny)
    distances = []
    for place in sorted({0, n // 2, n - 1}):
        alone = _clipped(
            asked, (inputs[place : place + 1], targets[place : place + 1]), 0, clip_norm
        )
        distances.append(float((_clipped(asked, lot, place, clip_norm) - alone).norm() / clip_norm))
    return max(distances)


def _clipped(engine: Engine, lot: Lot, place: int, clip_norm: Tensor) -> Tensor:
    """Clipped gradient of the record at this place of a lot [d]."""
    n, asked = len(lot[1]), 0

    def factors(norms: Tensor, clients: Tensor) -> Tensor:
        nonlocal asked
        chosen = torch.arange(asked, asked + len(norms)) == place
        asked += len(norms)
        return torch.where(chosen, (clip_norm / norms).clamp(max=1), 0.0)

    with _told_as_refusal(n):
        return engine.clipped_sums(*lot, torch.zeros(n, dtype=torch.int64), 1, factors).sums[0]


def _probe_clients(model: FlatModel, draw: LotSource, sizes: Sequence[int]) -> None:
    """Replace the records of one client at a time among clients that train side by side."""
    stacked = StackedModel(model)
    records = sorted({max(1, min(n, max(sizes) // _CLIENTS)) for n in sizes})
    before = {n: _answers_of_clients(stacked, draw(_CLIENTS * n), None) for n in records}
    saved = SavedState(model)
    for n in records:
        lot = draw(_CLIENTS * n)
        for client, replace in zip(cycle(range(_CLIENTS)), _REPLACEMENTS, strict=False):
            x, y = lot[0].clone(), lot[1].clone()
            own = slice(client * n, (client + 1) * n)
            value = replace(x[own], x.flip(0)[own])
            if value is None:
                continue
            x[own], y[own] = value, lot[1].roll(1, 0)[own]
            expected = _answers_of_clients(stacked, lot, client)
            if not all(map(same_bits, expected, _answers_of_clients(stacked, (x, y), client))):
                raise _mixes(f"a client changes what others compute of {n} records each")
            _refuse_change(saved, n)
    for n in records:
        after = _answers_of_clients(stacked, draw(_CLIENTS * n), None)
        if not all(map(same_bits, before[n], after)):
            raise _mixes(f"clients of {n} records compute something else after others than before")


def _answers_of_clients(
    stacked: StackedModel, lot: Lot, left_out: int | None
) -> tuple[Tensor, Tensor]:
    """Gradients and losses of all clients but one."""
    inputs, targets = (x.unflatten(0, (_CLIENTS, -1)) for x in lot)
    weights = stacked.model.flat.repeat(_CLIENTS, 1)
    present = torch.ones(targets.shape[:2], dtype=torch.bool)
    with _told_as_refusal(len(lot[1])):
        gradients, losses = stacked.gradients(weights, inputs, targets, present)
    kept = [client for client in range(_CLIENTS) if client != left_out]
    return gradients[kept] + 0.0, losses[kept]


def _refuse_change(saved: SavedState, size: int) -> None:
    if (changed := saved.change()) is not None:
        raise mixing_refusal(f"{changed} changed by a lot of {size} in training")


def _mixes(what: str) -> ConfigError:
    return mixing_refusal(
        f"{what}, so clipping one gradient or upload does not bound the influence of its owner; use layers "
        "and losses that treat each record on its own, or isolate_records=true"
    )


@contextmanager
def _told_as_refusal(size: int) -> Iterator[None]:
    """Turn what a model raises for odd records into a refusal: a run must not end by what is private."""
    try:
        yield
    except (ArithmeticError, AssertionError, RuntimeError, ValueError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise mixing_refusal(f"it fails in a lot of {size} random records ({first})") from error
