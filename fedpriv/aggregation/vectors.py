"""The vectors that a rule combines: uploads, or linear combinations of uploads that are never stored.

    y_i = Σ_j M_ij x_j      x_j the uploads [n, d], M the matrix of steps before the rule, or the identity

Most rules need no more of the vectors than inner products: distances, norms, eigenvectors and iterations
inside their span follow from a matrix [m, m], and the result is one more linear combination of the uploads.
So the memory of a round stays near that of the uploads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

_AT_ONCE = 2**20
"""Numbers of a chunk of coordinates over all uploads: 8 MB in double precision."""
_SIGNIFICANT_BITS = 40


class Vectors:
    """Linear combinations y [m, d] of the finite ones among some uploads [c, d].

    Inner products are summed in float64 over chunks of coordinates in a fixed order, of the differences to
    one upload, that with the median norm: a large common part, or one huge upload, takes no digits from the
    distances between the others. Equal uploads have equal distances, to the bit.

    Args:
        uploads: The uploads [c, d], or a list of them; at least one.

    Attributes:
        kept: Rows of the uploads that are finite, with a finite squared norm [n].
        matrix: M [m, n].
    """

    def __init__(self, uploads: Tensor | Sequence[Tensor]):
        self._uploads = uploads
        self.kept = np.arange(len(uploads))
        squares = np.zeros(len(uploads))
        for _, chunk in self._chunks_of_uploads():
            squares += chunk.double().square().sum(dim=1).cpu().numpy()
        self.kept = np.flatnonzero(np.isfinite(squares))
        self._upload_squares = squares[self.kept]
        self._mixed_from: Vectors | None = None
        self.matrix = np.eye(len(self.kept))

    def mixed(self, matrix: np.ndarray) -> Vectors:
        """Return the linear combinations Σ_i matrix_ki y_i of these vectors.

        Args:
            matrix: The coefficients [k, m].
        """
        mixed = object.__new__(Vectors)
        mixed._uploads, mixed.kept, mixed._mixed_from = self._uploads, self.kept, self._source
        mixed.matrix = matrix @ self.matrix
        return mixed

    @property
    def _source(self) -> Vectors:
        """The vectors that are the uploads themselves."""
        return self if self._mixed_from is None else self._mixed_from

    def __len__(self) -> int:
        return len(self.matrix)

    @property
    def size(self) -> int:
        """Number of coordinates d."""
        return len(self._uploads[0])

    # ---- inner products

    @cached_property
    def _reference(self) -> int:
        """Place of the upload with the median norm."""
        order = ascending(self._upload_squares)
        return int(order[(len(order) - 1) // 2])

    @cached_property
    def _products(self) -> np.ndarray:
        """Inner products of x_j - x_r for all uploads j, with x_r itself as the last row [n + 1, n + 1]."""
        import torch

        total = torch.zeros(
            (len(self.kept) + 1,) * 2, dtype=torch.float64, device=self._uploads[0].device
        )
        for _, chunk in self._chunks_of_uploads():
            rows = torch.empty(
                (len(chunk) + 1, chunk.shape[1]), dtype=torch.float64, device=chunk.device
            )
            rows[:-1], rows[-1] = chunk, chunk[self._reference]
            rows[:-1] -= rows[-1]
            total += rows @ rows.T
        products = total.cpu().numpy()
        products = (products + products.T) / 2.0
        # A matrix product may round equal rows differently, by their places. Ties must be ties.
        squares = np.diag(products)
        near = products[:-1, :-1] >= (1.0 - 1e-9) * np.maximum.outer(squares[:-1], squares[:-1])
        for row in range(len(self.kept)):
            for first in np.flatnonzero(near[row, :row]):
                if self._equal(row, int(first)):
                    products[row] = products[first]
                    products[:, row] = products[:, first]
                    break
        return products

    def _equal(self, row: int, other: int) -> bool:
        """Return whether two uploads are equal; a few coordinates tell most of them apart."""
        import torch

        first, second = self._uploads[int(self.kept[row])], self._uploads[int(self.kept[other])]
        return torch.equal(first[:64], second[:64]) and torch.equal(first, second)

    def _inner(self, offset: float) -> np.ndarray:
        """Return the inner products of y_i - offset · x_r [m, m]."""
        rows = np.column_stack([self.matrix, self.matrix.sum(axis=1) - offset])
        if offset and np.array_equal(self.matrix, np.eye(len(self.kept))):
            return self._source._products[:-1, :-1].copy()
        products: np.ndarray = rows @ self._source._products @ rows.T
        return (products + products.T) / 2.0

    @cached_property
    def products(self) -> np.ndarray:
        """Inner products ⟨y_i, y_j⟩ [m, m]."""
        return self._inner(0.0)

    @cached_property
    def differences(self) -> np.ndarray:
        """Inner products of y_i - x_r, for one of the uploads x_r [m, m].

        They serve for whatever does not change when all vectors are moved: distances and covariances.
        """
        return self._inner(1.0)

    @cached_property
    def norms(self) -> np.ndarray:
        """Norms of the vectors [m]."""
        return np.sqrt(np.maximum(np.diag(self.products), 0.0))

    @cached_property
    def squared_distances(self) -> np.ndarray:
        """Squared distances ‖y_i - y_j‖² [m, m]."""
        squares = np.diag(self.differences)
        distances = np.add.outer(squares, squares) - 2.0 * self.differences
        np.fill_diagonal(distances, 0.0)
        return np.maximum(distances, 0.0)

    def products_of(self, coordinates: np.ndarray) -> np.ndarray:
        """Return the inner products of some coordinates of the vectors, moved by one upload [m, m].

        Args:
            coordinates: Numbers of the coordinates, ascending.
        """
        import torch

        source = self._source
        reference = source._reference
        total = np.zeros((len(self.kept),) * 2)
        width = max(1, _AT_ONCE // len(self.kept))
        rows = self.kept.tolist()
        for first in range(0, len(coordinates), width):
            columns = torch.from_numpy(coordinates[first : first + width])
            chunk = torch.stack([self._uploads[row][columns] for row in rows]).double()
            chunk -= chunk[reference].clone()
            total += (chunk @ chunk.T).cpu().numpy()
        products: np.ndarray = self.matrix @ total @ self.matrix.T
        return (products + products.T) / 2.0

    def products_with(self, other: Tensor) -> np.ndarray:
        """Return the inner products of the vectors with one more vector [m].

        Args:
            other: The vector [d].
        """
        inner = np.zeros(len(self.kept))
        for first, chunk in self._chunks_of_uploads():
            part = other[first : first + chunk.shape[1]].to(chunk.device).double()
            inner += (chunk.double() * part).sum(dim=1).cpu().numpy()
        return self.matrix @ inner

    # ---- results

    def combination(self, weights: np.ndarray) -> Tensor:
        """Return Σ_i weights_i y_i [d], added up in float64 in the order of the uploads.

        Args:
            weights: The weight of each vector [m].
        """
        import torch

        coefficients = weights @ self.matrix
        total = torch.zeros(self.size, dtype=torch.float64, device=self._uploads[0].device)
        for row, coefficient in zip(self.kept, coefficients, strict=True):
            if coefficient:
                total.add_(self._uploads[int(row)], alpha=float(coefficient))
        return total.to(self._uploads[0].dtype)

    def vector(self, place: int) -> Tensor:
        """Return one of the vectors [d]; not a copy, if it is an upload."""
        coefficients = self.matrix[place]
        (uploads,) = coefficients.nonzero()
        if len(uploads) == 1 and coefficients[uploads[0]] == 1.0:
            return self._uploads[int(self.kept[uploads[0]])]
        return self.combination(np.eye(len(self))[place])

    def by_coordinate(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Return ``function`` of the vectors, applied to chunks of coordinates [d].

        Args:
            function: (some coordinates of all vectors [m, k]) → one number for each coordinate [k].
        """
        result = self._uploads[0].new_empty(self.size)
        for first, chunk in self.chunks():
            result[first : first + chunk.shape[1]] = function(chunk)
        return result

    def chunks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield (first coordinate, the vectors' values of some coordinates [m, k]), in order."""
        import torch

        count = len(self.kept)
        mixes = not np.array_equal(self.matrix, np.eye(count))
        scales = mixes and np.array_equal(self.matrix, np.diag(np.diag(self.matrix)))
        for first, chunk in self._chunks_of_uploads():
            if scales:
                factors = torch.from_numpy(np.diag(self.matrix).copy()).to(chunk.device)
                chunk = (chunk.double() * factors[:, None]).to(chunk.dtype)
            elif mixes:
                matrix = torch.from_numpy(self.matrix).to(chunk.device)
                chunk = (matrix @ chunk.double()).to(chunk.dtype)
            yield first, chunk

    def _chunks_of_uploads(self) -> Iterator[tuple[int, Tensor]]:
        import torch

        uploads, count = self._uploads, len(self._uploads)
        width = max(1, _AT_ONCE // count)
        for first in range(0, self.size, width):
            some = slice(first, first + width)
            if isinstance(uploads, torch.Tensor) and len(self.kept) == count:
                yield first, uploads[:, some]
            else:
                yield first, torch.stack([uploads[row][some] for row in self.kept.tolist()])


def sorted_columns(chunk: Tensor) -> Tensor:
    """Return the numbers of each coordinate in ascending order [k, m], for a chunk [m, k]."""
    import torch

    columns = chunk.T.contiguous()
    if columns.device.type == "cpu":  # NumPy sorts short rows about five times as fast as torch
        return torch.from_numpy(np.sort(columns.numpy(), axis=1))
    return columns.sort(dim=1).values


def ascending(scores: np.ndarray) -> np.ndarray:
    """Return the places of scores [n] in ascending order; of equal scores the first comes first.

    Scores count as equal if they agree in 40 bits: the last bits depend on the number of threads.
    """
    fractions, exponents = np.frexp(scores)
    rounded = np.ldexp(
        np.round(np.ldexp(fractions, _SIGNIFICANT_BITS)), exponents - _SIGNIFICANT_BITS
    )
    order: np.ndarray = np.argsort(rounded, axis=-1, kind="stable")
    return order


def share_out(places: np.ndarray, count: int) -> np.ndarray:
    """Return the weights of a mean over some of ``count`` vectors [count].

    Args:
        places: Places of the vectors in the mean.
        count: Number of all vectors.
    """
    weights = np.zeros(count)
    weights[places] = 1.0 / len(places)
    return weights
