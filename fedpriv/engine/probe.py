"""A probe for models that look at a record's neighbours, or remember records, on the engine that trains.

Clipping bounds the influence of a record only if its gradient is a function of the record and the weights.
The probe computes losses, norms and weighted sums of gradients, in lots of several sizes. It refuses a model
where

* another record's results change by a bit when one record is replaced (huge, not finite, exchanged with
  another one, or with another label) in a lot of the same shape;
* the results of lot A differ by a bit before and after other lots, whatever remembered these lots;
* a parameter, a buffer or extra state changes;
* a record's clipped gradient is further from its gradient computed alone than 1e-5 of the clip norm.

Records are random. A model that does this only in larger lots, or for records of a certain kind, is not
found: this is a probe and not a proof. For a proof, train with ``isolate_records``.
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
"""Allowed distance of a record's clipped gradient in a lot from that of the record alone, in clip norms."""
_SMALL_LOTS = (2, 9, 65)
_THOROUGH = 2**20  # records × parameters up to which every replacement is tried at every place
_MOST_VALUES = 2**25  # records × parameters of the largest lot
_CLIENTS = 3
_ROUNDING = 1e-6  # relative error of a sum that is computed in another way

Lot = tuple[Tensor, Tensor]
"""Inputs [n, …] and targets [n, …]."""
LotSource = Callable[[int], Lot]
"""number of records → a random lot of that size."""


def lot_sizes(parameters: int, real: Sequence[float], isolated: bool) -> list[int]:
    """Choose the sizes of the lots that a model is probed with.

    Args:
        parameters: Number of parameters, which bounds the largest lot.
        real: Sizes of the run's own lots; each is probed, and twice each.
        isolated: Whether every record is computed by itself, so that sizes matter less.

    Returns:
        Sizes, ascending.
    """
    if isolated:
        return list(_SMALL_LOTS[:2])
    most = max(_SMALL_LOTS[1], min(BLOCK_RECORDS, _MOST_VALUES // max(1, parameters)))
    sizes = [*_SMALL_LOTS, *(round(size * times) for size in real for times in (1, 2))]
    return sorted({max(2, min(most, size)) for size in sizes})


def refuse_dependent_records(
    module: nn.Module, draw: LotSource, sizes: Sequence[int], engine: str, isolated: bool
) -> None:
    """Raise ConfigError for a model in which a record or a client changes what is computed of others.

    Random lots are computed before and after records are replaced, after other lots, and with each record
    alone; the module docstring lists what is compared. A model without per-record gradients is probed with
    clients side by side only.

    Args:
        module: The model, which is left as it is.
        draw: Random lots of a given size, on the CPU.
        sizes: Sizes of the lots.
        engine: Engine of the run: ``auto``, ``fast`` or ``opacus``.
        isolated: Whether the run computes each record with a copy of the model. Otherwise the model is also
            probed with perturbed weights, and records in lots are compared with records alone.

    Raises:
        ConfigError: Names what depends on other records, at which size of lot.
    """
    probed = [copy.deepcopy(module)]
    if not isolated:  # where records are isolated, weights open no way from one record to another
        probed.append(with_other_weights(module))
    for start in probed:
        start = start.cpu().train()
        _refuse_first_lot_kept(start, draw, isolated)
        model = FlatModel(copy.deepcopy(start), isolated)
        probed_engine = make_engine(model, engine=engine)
        if _has_record_gradients(probed_engine, draw):
            _probe_records(model, probed_engine, draw, sizes)
            if not isolated:
                _refuse_unlike_alone(start, draw, sizes, engine)
        _probe_clients(FlatModel(copy.deepcopy(start), isolated), draw, sizes)


def _has_record_gradients(engine: Engine, draw: LotSource) -> bool:
    """Return whether the engine can treat the model; client-level algorithms do not need that."""
    with _failures_refused(2):
        try:
            engine.clipped_sums(*draw(2), torch.zeros(2, dtype=torch.int64), 1, None)
        except ConfigError:
            return False
    return True


def _refuse_first_lot_kept(module: nn.Module, draw: LotSource, isolated: bool) -> None:
    """Give two copies different first lots, and compare them on the same second lot.

    A first call may leave something behind (a cache of positions, for example), but nothing that follows
    from records.
    """
    inputs, targets = draw(_SMALL_LOTS[1])
    flipped = inputs.flip(0)
    other_lot = (flipped * 30 if inputs.is_floating_point() else flipped), targets.flip(0)
    copies, losses = [], []
    for first_lot in ((inputs, targets), other_lot):
        model = FlatModel(copy.deepcopy(module), isolated)
        with _failures_refused(len(targets)):
            model.record_losses(*first_lot)
            losses.append(model.record_losses(*draw(_SMALL_LOTS[0])))
        copies.append(model)
    first, second = copies
    if not (same_bits(first.flat, second.flat) and first.is_flat() and second.is_flat()):
        raise mixing_refusal("a parameter was changed by the first records that it sees")
    if (changed := SavedState(second, SavedState(first).beside_weights).change()) is not None:
        raise mixing_refusal(f"{changed} changed by the first records that it sees")
    if not same_bits(*losses):
        raise mixing_refusal("its losses depend on the first records that it sees")


def _probe_records(model: FlatModel, engine: Engine, draw: LotSource, sizes: Sequence[int]) -> None:
    """Replace records one at a time, and compute each lot again after all other lots."""
    before = {n: _results(engine, draw(n), None) for n in sizes[:1]}
    saved = SavedState(
        model
    )  # after the first call, whose traces were shown to follow from no record
    before |= {n: _results(engine, draw(n), None) for n in sizes[1:]}
    _refuse_change(saved, sizes[-1])
    for n in sizes:
        lot, expected = draw(n), {}
        thorough = n * model.size <= _THOROUGH and not model.isolated
        for place, changed_lot in _replaced(lot, thorough):
            if place not in expected:
                expected[place] = _results(engine, lot, place)
            results = _results(engine, changed_lot, place)
            if not _same_results(expected[place], results):
                raise _mixes(f"a record changes what the others of a lot of {n} give")
            _refuse_change(saved, n)
    for n in sizes:
        if not _same_results(before[n], _results(engine, draw(n), None)):
            raise _mixes(f"a lot of {n} gives something else after other lots than before them")


@dataclass(frozen=True)
class _Results:
    """Results for all records of a lot but one.

    Attributes:
        columns: Losses, norms and finiteness of the other records [3, n - 1].
        sums: A weighted sum of their gradients [1, d].
        all_finite: Whether the record that is left out is finite too.
    """

    columns: Tensor
    sums: Tensor
    all_finite: bool


def _same_results(first: _Results, second: _Results) -> bool:
    """Return whether results agree in all bits.

    An engine sums a lot with a record that is not finite in another way, so the sums of such a lot need to
    agree up to rounding only.
    """
    if not same_bits(first.columns, second.columns):
        return False
    if first.all_finite and second.all_finite:
        return same_bits(first.sums, second.sums)
    return bool((first.sums - second.sums).norm() <= _ROUNDING * first.sums.norm())


def _results(engine: Engine, lot: Lot, left_out: int | None) -> _Results:
    """Compute all records of a lot, and return the results of all but one."""
    inputs, targets = lot
    n, done = len(targets), 0
    weights, mask = torch.linspace(0.5, 1.0, n), torch.ones(n, dtype=torch.bool)
    if left_out is not None:
        weights[left_out], mask[left_out] = 0, False

    def factors(norms: Tensor, clients: Tensor) -> Tensor:
        nonlocal done  # an engine asks block by block
        done += len(norms)
        return weights[done - len(norms) : done].to(norms)

    with _failures_refused(n):
        result = engine.clipped_sums(inputs, targets, torch.zeros(n, dtype=torch.int64), 1, factors)
    columns = (result.losses, result.norms, result.finite.to(result.losses.dtype))
    # adding 0 gives -0 and 0 the same bits
    return _Results(
        torch.stack([column[mask] for column in columns]),
        result.sums + 0.0,
        bool(result.finite.all()),
    )


def _replaced(lot: Lot, thorough: bool) -> Iterator[tuple[int, Lot]]:
    """Yield lots in which one record is replaced.

    Args:
        lot: The lot.
        thorough: Whether a record is replaced in every way at every place; else in each way at one place.

    Yields:
        (place of the record, changed lot).
    """
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
        other_labels = (targets != targets[place]).reshape(n, -1).any(1).nonzero().flatten()
        if len(other_labels):
            y[place] = targets[other_labels[len(other_labels) // 2]]
        yield place, (x, y)
    for place in places[1:2]:  # the record takes the value of the first record
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
"""(input of the record, of another record) → input in its place; None: not for inputs of this kind."""


def _refuse_unlike_alone(
    module: nn.Module, draw: LotSource, sizes: Sequence[int], engine: str
) -> None:
    """Compare clipped gradients of records in lots and alone.

    The comparison is made in the model's precision first, and in float64 where rounding is too coarse.
    """
    for size in sizes:
        distance = _distance_from_alone(module, draw(size), engine)
        if distance > TOLERANCE:
            try:
                inputs, targets = (x.double() if x.is_floating_point() else x for x in draw(size))
                double = copy.deepcopy(module).double()
                distance = _distance_from_alone(double, (inputs, targets), engine)
            except (RuntimeError, ConfigError):  # the model knows one precision only
                pass
        if not distance <= TOLERANCE:
            raise _mixes(
                f"the clipped gradient of a record in a lot of {size} is {distance:.1e} clip norms from "
                "what the record gives alone"
            )


def _distance_from_alone(module: nn.Module, lot: Lot, engine: str) -> float:
    """Return how far a record's clipped gradient in the lot is from that of the same record alone.

    The first, the middle and the last record are compared, and the largest distance is returned. It is in
    units of the clip norm, which is the median gradient norm of the lot.
    """
    probed = make_engine(FlatModel(copy.deepcopy(module)), engine=engine)
    inputs, targets = lot
    n = len(targets)
    norms = _results(probed, lot, None).columns[1]
    clip_norm = norms.median().clamp_min(torch.finfo(norms.dtype).tiny)
    distances = []
    for place in sorted({0, n // 2, n - 1}):
        single = (inputs[place : place + 1], targets[place : place + 1])
        alone = _clipped(probed, single, 0, clip_norm)
        in_lot = _clipped(probed, lot, place, clip_norm)
        distances.append(float((in_lot - alone).norm() / clip_norm))
    return max(distances)


def _clipped(engine: Engine, lot: Lot, place: int, clip_norm: Tensor) -> Tensor:
    """Return the clipped gradient of the record at one place of a lot [d]."""
    n, done = len(lot[1]), 0

    def factors(norms: Tensor, clients: Tensor) -> Tensor:
        nonlocal done
        chosen = torch.arange(done, done + len(norms)) == place
        done += len(norms)
        return torch.where(chosen, (clip_norm / norms).clamp(max=1), 0.0)

    with _failures_refused(n):
        return engine.clipped_sums(*lot, torch.zeros(n, dtype=torch.int64), 1, factors).sums[0]


def _probe_clients(model: FlatModel, draw: LotSource, sizes: Sequence[int]) -> None:
    """Replace the records of one client at a time among clients that train side by side."""
    stacked = StackedModel(model)
    records = sorted({max(1, min(n, max(sizes) // _CLIENTS)) for n in sizes})
    before = {n: _client_results(stacked, draw(_CLIENTS * n), None) for n in records}
    saved = SavedState(model)
    for n in records:
        lot = draw(_CLIENTS * n)
        for client, replace in zip(cycle(range(_CLIENTS)), _REPLACEMENTS, strict=False):
            x, y = lot[0].clone(), lot[1].clone()
            rows = slice(client * n, (client + 1) * n)
            value = replace(x[rows], x.flip(0)[rows])
            if value is None:
                continue
            x[rows], y[rows] = value, lot[1].roll(1, 0)[rows]
            expected = _client_results(stacked, lot, client)
            if not all(map(same_bits, expected, _client_results(stacked, (x, y), client))):
                raise _mixes(f"a client changes what others compute of {n} records each")
            _refuse_change(saved, n)
    for n in records:
        after = _client_results(stacked, draw(_CLIENTS * n), None)
        if not all(map(same_bits, before[n], after)):
            raise _mixes(f"clients of {n} records compute something else after others than before")


def _client_results(stacked: StackedModel, lot: Lot, left_out: int | None) -> tuple[Tensor, Tensor]:
    """Return (gradients, losses) of all clients but one."""
    inputs, targets = (x.unflatten(0, (_CLIENTS, -1)) for x in lot)
    weights = stacked.model.flat.repeat(_CLIENTS, 1)
    present = torch.ones(targets.shape[:2], dtype=torch.bool)
    with _failures_refused(len(lot[1])):
        gradients, losses = stacked.gradients(weights, inputs, targets, present)
    others = [client for client in range(_CLIENTS) if client != left_out]
    return gradients[others] + 0.0, losses[others]


def _refuse_change(saved: SavedState, size: int) -> None:
    if (changed := saved.change()) is not None:
        raise mixing_refusal(f"{changed} changed by a lot of {size} in training")


def _mixes(what: str) -> ConfigError:
    return mixing_refusal(
        f"{what}, so clipping one gradient or upload does not bound the influence of its owner; use layers "
        "and losses that treat each record on its own, or isolate_records=true"
    )


@contextmanager
def _failures_refused(size: int) -> Iterator[None]:
    """Turn an error that a model raises for odd records into a refusal.

    In a run such an error would end training because of what is in private records.
    """
    try:
        yield
    except (ArithmeticError, AssertionError, RuntimeError, ValueError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise mixing_refusal(f"it fails in a lot of {size} random records ({first})") from error
