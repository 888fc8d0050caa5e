"""What both engines do alike: cutting into blocks, masking, and the proof against autograd."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from fedpriv.engine.flat_model import FlatModel, Loss
from fedpriv.engine.interface import ClippedSums, Factors, Sliced
from fedpriv.engine.lots import Lots, RecordBlock, blocks, in_pieces, lot_sizes, sum_dtype
from fedpriv.engine.norms import total_above
from fedpriv.engine.parts import part_norms, part_of
from fedpriv.engine.rules import LayerGradients
from fedpriv.privacy.clippers.parts import LayerGroups


class Unsupported(Exception):
    """This engine cannot treat the model; the text says which layer and why."""


class BlockEngine(ABC):
    """An engine that treats the records of a few clients at a time.

    Args:
        model: The model; modules are switched to training mode and off in-place activation, which
            would overwrite what a layer gave before its gradient is measured.
        loss: (outputs, targets) → loss of each record [n].
    """

    name: str

    def __init__(self, model: FlatModel, loss: Loss):
        self.model, self.loss = model, loss
        # numbers that a pass over a record holds, where the model says it
        self._values_per_record: int | None = getattr(model.module, "values_per_record", None)
        self._proven = False
        switch_off_inplace(model.module)

    def _outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.model(inputs)

    def _losses(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss of each record [n], attached to the graph: the mean over its copies, side by side in
        ``inputs`` [n · K, …].

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
        """Per-record gradients of every layer, losses [n], and if ``prove`` autograd's gradient of
        their sum [d]; for ``inputs`` [n · K, …], the K copies of a record side by side."""

    def clipped_sums(
        self,
        inputs: torch.Tensor | Sliced,
        targets: torch.Tensor | Sliced,
        client_of_record: torch.Tensor,
        clients: int,
        factors: Factors | None,
    ) -> ClippedSums:
        """See :meth:`fedpriv.engine.interface.Engine.clipped_sums`."""
        counts = lot_sizes(client_of_record, clients)
        if not len(inputs) == len(targets) == len(client_of_record):
            raise ValueError("inputs, targets and client_of_record differ in length")
        device, dtype = self.model.device, self.model.flat.dtype
        kept = dtype if factors is None else sum_dtype(counts, dtype)
        sums = torch.zeros(clients, self.model.size, device=device, dtype=kept)
        client_of_record = client_of_record.to(device, non_blocking=True)
        if not self.model.module.training:
            self.model.module.train()
        parts, copies = [], getattr(inputs, "copies", None)
        for block in blocks(counts, self._values_per_record, copies or 1):
            if block.start < block.stop:
                records = slice(block.start, block.stop)
                read = inputs[records] if copies is None else inputs[records].flatten(0, 1)
                shared = (read, targets[records], client_of_record[records])
                parts.append(self._block(block, counts, *shared, factors, sums))
        if not parts:
            empty = torch.zeros(0, device=device, dtype=dtype)
            return ClippedSums(sums, empty, empty, empty.bool())
        norms, losses, finite = (torch.cat(column) for column in zip(*parts, strict=True))
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
        """Add the sums of one block to its rows of ``sums``; its (norms, losses, finite)."""
        layers, losses, plain = self._gradients(inputs, targets, not self._proven)
        with torch.no_grad():
            if plain is not None:
                self._prove(layers, losses, plain)
            norms, finite = losses.new_zeros(0), losses.isfinite()
            scale = torch.ones_like(losses)
            parts = getattr(factors, "parts", None)  # what is measured and scaled apart
            if factors is not None:
                layers = layers if parts is None else self._apart(layers)
                if parts is None:
                    norms = total_above([layer.squared_norms() for layer in layers])
                    finite = finite & norms.isfinite()
                else:
                    norms = part_norms(layers, parts)
                    finite = finite & norms.sum(1).isfinite()
                broken = ~finite if parts is None else ~finite[:, None]
                scale = factors(norms, client_of_record).masked_fill(broken, 0)
                # a factor of 0 would not do for what is not finite: 0 · nan is nan; looking whether there
                # is any would make an accelerator wait
                if finite.device.type != "cpu" or not bool(finite.all()):
                    for layer in layers:
                        layer.zero_where(~finite)
            rows, sizes = sums[block.first : block.last], block.sizes(counts)
            if rows.dtype != self.model.flat.dtype:
                _add_pieces(layers, sizes, scale, rows, parts)
                return norms, losses, finite
            into = torch.zeros_like(rows) if block.continued else rows
            _add_sums(layers, sizes, client_of_record - block.first, scale, into, parts)
            if block.continued:
                rows += into
        return norms, losses, finite

    def _apart(self, layers: Sequence[LayerGradients]) -> Sequence[LayerGradients]:
        """The same gradients, each of one layer of the model alone."""
        return layers

    def _prove(
        self, layers: Sequence[LayerGradients], losses: torch.Tensor, plain: torch.Tensor
    ) -> None:
        """Compare with autograd once: weights a layer does not use itself (a tied or functional
        use) would be missing from the norms, and so escape clipping.

        Raises:
            Unsupported: The gradients do not add up to autograd's.
        """
        client_of_record = torch.zeros_like(losses, dtype=torch.int64)
        everyone = Lots([len(losses)], client_of_record, torch.ones_like(losses))
        total = torch.zeros_like(plain).unsqueeze(0)
        for layer in layers:
            layer.add_sums(everyone, total)
        # Wide enough for convolutions in reduced precision (TF32); a forgotten use is far larger.
        norms = total_above([layer.squared_norms() for layer in layers])
        tolerance = 1e-2 * plain.norm() + 1e-3 * norms.norm()
        difference = (total.squeeze(0) - plain).norm()
        if not bool(difference.isfinite()):
            return  # nothing to compare with; look again at the next records
        if bool(difference > tolerance):
            raise Unsupported("its layers do not account for all of its gradient")
        self._proven = True


def _add_sums(
    layers: Sequence[LayerGradients],
    sizes: list[int],
    client_of_record: torch.Tensor,
    scale: torch.Tensor,
    into: torch.Tensor,
    parts: LayerGroups | None,
) -> None:
    """Write the sums of all layers into ``into`` [K, d], for scales [n], or [n, G] where there are parts."""
    scales = [scale] if parts is None else scale.unbind(1)
    lots = [Lots(sizes, client_of_record, own.contiguous()) for own in scales]
    for layer in layers:
        layer.add_sums(lots[0 if parts is None else part_of(layer, parts)], into)


def _add_pieces(
    layers: Sequence[LayerGradients],
    sizes: list[int],
    scale: torch.Tensor,
    rows: torch.Tensor,
    parts: LayerGroups | None,
) -> None:
    """Add the sums of long lots to ``rows`` [K, d], float64, in pieces."""
    pieces, owners = in_pieces(sizes, rows.shape[1])
    piece_of_record = torch.repeat_interleave(torch.arange(len(pieces)), torch.tensor(pieces))
    sums = scale.new_zeros(len(pieces), rows.shape[1])
    _add_sums(layers, pieces, piece_of_record.to(scale.device), scale, sums, parts)
    for client, own in zip(owners, sums, strict=True):
        rows[client].add_(own)


def switch_off_inplace(module: nn.Module) -> None:
    """Let no activation overwrite what a layer gave before its gradient is measured."""
    for layer in module.modules():
        if getattr(layer, "inplace", False) is True:
            vars(layer)["inplace"] = False


def flat_gradient(
    model: FlatModel, gradients: Mapping[nn.Parameter, torch.Tensor | None]
) -> torch.Tensor:
    """The gradients of the parameters as one vector [d], zeros where there is none."""
    parameters = model.parameters()
    pairs = zip(parameters, map(gradients.get, parameters), strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for p, g in pairs])
