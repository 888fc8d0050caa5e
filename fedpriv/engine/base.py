"""The common part of all engines: blocks of bounded memory, norms, factors and sums, and a proof.

For each block of records:

    layers, losses ← gradients of the records, in a form that each engine chooses
    norm_i         ← ‖g_i‖ over all layers, never too small
    c_i            ← factors(norm_i, client_i), and 0 where g_i is not finite
    sums[k]        ← sums[k] + Σ_{i of k} c_i g_i

Before its first sums an engine proves on one block that its layers account for the whole gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import nn

from fedpriv.common.errors import ConfigError
from fedpriv.engine.flat_model import FlatModel, Loss
from fedpriv.engine.interface import ClippedSums, Factors, Sliced
from fedpriv.engine.lots import Lots, RecordBlock, blocks, in_pieces, lot_sizes, sum_dtype
from fedpriv.engine.norms import total_above
from fedpriv.engine.parts import part_of, record_norms
from fedpriv.engine.rules import LayerGradients
from fedpriv.privacy.clippers.parts import LayerGroups, rows_like

_PROVEN_RECORDS = 64
"""Records of the first block that the proof of an engine looks at, in double precision."""


class Unsupported(Exception):
    """A model that an engine cannot treat; the text says which layer and why."""


class BlockEngine(ABC):
    """An engine that treats the records of a few clients at a time.

    Args:
        model: The model. Modules are switched to training mode, and in-place activation is switched off: it
            would overwrite a layer's output before its gradient is measured.
        loss: (outputs, targets) → loss of each record [n].

    Attributes:
        name: Name of the engine, as in ``runtime.engine``.
        model: As given.
        loss: As given.
    """

    name: str

    def __init__(self, model: FlatModel, loss: Loss):
        self.model, self.loss = model, loss
        # how many numbers a pass over a record holds, where the model says so
        self._values_per_record: int | None = getattr(model.module, "values_per_record", None)
        self._proven = False
        switch_off_inplace(model.module)

    def _outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.model(inputs)

    def _losses(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of each record [n], attached to the graph.

        Args:
            inputs: Inputs [n · K, …], the K copies of a record side by side; its loss is their mean.
            targets: Targets [n, …].

        Raises:
            ValueError: The loss is not one number per record.
        """
        copies = len(inputs) // len(targets)
        if copies > 1:
            targets = targets.repeat_interleave(copies, 0)
        losses = self.loss(self._outputs(inputs), targets)
        if losses.shape != (len(inputs),):
            raise ValueError(f"the loss must be one per record, got shape {tuple(losses.shape)}")
        return losses if copies == 1 else losses.unflatten(0, (-1, copies)).mean(1)

    @abstractmethod
    def _gradients(
        self, inputs: torch.Tensor, targets: torch.Tensor, prove: bool
    ) -> tuple[Sequence[LayerGradients], torch.Tensor, torch.Tensor | None]:
        """Compute the gradients of a block of records.

        Args:
            inputs: Inputs [n · K, …], the K copies of a record side by side.
            targets: Targets [n, …].
            prove: Whether autograd's own gradient is computed too.

        Returns:
            (gradients of every layer, losses [n], autograd's gradient of their sum [d] if ``prove``, else
            None).
        """

    def clipped_sums(
        self,
        inputs: torch.Tensor | Sliced,
        targets: torch.Tensor | Sliced,
        client_of_record: torch.Tensor,
        clients: int,
        factors: Factors | None,
    ) -> ClippedSums:
        """Compute each client's clipped sum, and each record's norm, loss and finiteness, a block at a time.

        The first block is also compared with autograd. Arguments and result are those of
        :meth:`fedpriv.engine.Engine.clipped_sums`.

        Raises:
            Unsupported: The engine cannot treat the model.
            ValueError: The arguments differ in length.
        """
        counts = lot_sizes(client_of_record, clients)
        if not len(inputs) == len(targets) == len(client_of_record):
            raise ValueError("inputs, targets and client_of_record differ in length")
        device, dtype = self.model.device, self.model.flat.dtype
        sums_type = dtype if factors is None else sum_dtype(counts, dtype)
        sums = torch.zeros(clients, self.model.size, device=device, dtype=sums_type)
        client_of_record = client_of_record.to(device, non_blocking=True)
        if not self.model.module.training:
            self.model.module.train()
        columns, copies = [], getattr(inputs, "copies", None)
        for block in blocks(counts, self._values_per_record, copies or 1):
            if block.start < block.stop:
                records = slice(block.start, block.stop)
                read = inputs[records] if copies is None else inputs[records].flatten(0, 1)
                batch = (read, targets[records], client_of_record[records])
                columns.append(self._block(block, counts, *batch, factors, sums))
        if not columns:
            empty = torch.zeros(0, device=device, dtype=dtype)
            return ClippedSums(sums, empty, empty, empty.bool())
        norms, losses, finite = (torch.cat(column) for column in zip(*columns, strict=True))
        return ClippedSums(sums, norms, losses, finite)

    def _block(
        self,
        block: RecordBlock,
        counts: list[int],
        inputs: torch.Tensor,
        targets: torch.Tensor,
        client_of_record: torch.Tensor,
        factors: Factors | None,
        sums: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Add the clipped sums of one block to its clients' rows of ``sums``.

        Returns:
            (norms [n] or [n, G], losses [n], mask of the finite records [n]).
        """
        # 1. Gradients, and on the first block the proof.
        if not self._proven:
            # Twice, as another dimension may be as long as that of the records by chance.
            most, copies = min(len(targets), _PROVEN_RECORDS), len(inputs) // len(targets)
            shorter = (n for n in (most - 1, most) if n)
            self._proven = most > 1 and all(
                self._prove(inputs[: n * copies], targets[:n]) for n in shorter
            )
        layers, losses, _ = self._gradients(inputs, targets, False)
        with torch.no_grad():
            # 2. Norms and factors. A record that is not finite gets the factor 0.
            norms, finite = losses.new_zeros(0), losses.isfinite()
            scale = torch.ones_like(losses)
            parts = getattr(factors, "parts", None)  # parts that are measured and scaled apart
            if factors is not None:
                if parts is not None:
                    layers = self._layer_by_layer(layers)
                norms = record_norms(layers, parts)
                finite = finite & norms.reshape(len(finite), -1).sum(1).isfinite()
                scale = factors(norms, client_of_record)
                scale = scale.masked_fill(~rows_like(finite, norms), 0)
                # The factor 0 is not enough: 0 · nan is nan. On an accelerator the gradients are masked
                # without looking, because looking would make the accelerator wait.
                if finite.device.type != "cpu" or not bool(finite.all()):
                    for layer in layers:
                        layer.zero_where(~finite)

            # 3. Sums: long lots in pieces that are added up in double precision.
            rows, sizes = sums[block.first : block.last], block.sizes(counts)
            if rows.dtype != self.model.flat.dtype:
                _add_pieces(layers, sizes, scale, rows, parts)
                return norms, losses, finite
            target = torch.zeros_like(rows) if block.continued else rows
            _write_sums(layers, sizes, client_of_record - block.first, scale, target, parts)
            if block.continued:
                rows += target
        return norms, losses, finite

    def _layer_by_layer(self, layers: Sequence[LayerGradients]) -> Sequence[LayerGradients]:
        """Return the same gradients with an item for each layer of the model."""
        return layers

    def _prove(self, inputs: torch.Tensor, targets: torch.Tensor) -> bool:
        """Compare the sum of all layers' gradients with autograd's. Return False if these are not finite.

        Weights that are used outside their layer (a tied weight, a functional call) would be missing from
        the norms, and would so escape clipping. A copy in double precision shows a small use too.

        Raises:
            Unsupported: The gradients do not add up to autograd's.
        """
        # Huge records would only show rounding.
        exact = inputs.double().clamp(-1e6, 1e6) if inputs.is_floating_point() else inputs
        try:
            model = FlatModel(self.model.copied()[0].double())
            loss = model.loss if self.loss == self.model.loss else self.loss
            layers, losses, plain = type(self)(model, loss)._gradients(exact, targets, True)
            allowed, hidden = 1e-4, 1e-9
        except (ConfigError, RuntimeError):  # without a copy, or not in double precision
            layers, losses, plain = self._gradients(inputs, targets, True)
            allowed, hidden = 1e-2, 1e-3  # wide enough for convolutions in reduced precision (TF32)
        assert plain is not None
        with torch.no_grad():
            client_of_record = torch.zeros_like(losses, dtype=torch.int64)
            all_records = Lots([len(losses)], client_of_record, torch.ones_like(losses))
            total = torch.zeros_like(plain).unsqueeze(0)
            for layer in layers:
                layer.add_sums(all_records, total)
            norms = total_above([layer.squared_norms() for layer in layers])
            difference = (total.squeeze(0) - plain).norm()
            if bool(difference > allowed * plain.norm() + hidden * norms.norm()):
                raise Unsupported("its layers do not account for all of its gradient")
        return bool(difference.isfinite())


def _write_sums(
    layers: Sequence[LayerGradients],
    sizes: list[int],
    client_of_record: torch.Tensor,
    scale: torch.Tensor,
    target: torch.Tensor,
    parts: LayerGroups | None,
) -> None:
    """Write the sums of all layers into ``target`` [K, d], for scales [n], or [n, G] with parts."""
    scales = [scale] if parts is None else scale.unbind(1)
    lots = [Lots(sizes, client_of_record, of_part.contiguous()) for of_part in scales]
    for layer in layers:
        layer.add_sums(lots[0 if parts is None else part_of(layer, parts)], target)


def _add_pieces(
    layers: Sequence[LayerGradients],
    sizes: list[int],
    scale: torch.Tensor,
    rows: torch.Tensor,
    parts: LayerGroups | None,
) -> None:
    """Add the sums of long lots to ``rows`` [K, d], which are float64, piece by piece."""
    pieces, owners = in_pieces(sizes, rows.shape[1])
    piece_of_record = torch.repeat_interleave(torch.arange(len(pieces)), torch.tensor(pieces))
    sums = scale.new_zeros(len(pieces), rows.shape[1])
    _write_sums(layers, pieces, piece_of_record.to(scale.device), scale, sums, parts)
    for client, piece_sum in zip(owners, sums, strict=True):
        rows[client].add_(piece_sum)


def switch_off_inplace(module: nn.Module) -> None:
    """Switch off in-place activation: it would overwrite a layer's output before it is measured."""
    for layer in module.modules():
        if getattr(layer, "inplace", False) is True:
            vars(layer)["inplace"] = False
