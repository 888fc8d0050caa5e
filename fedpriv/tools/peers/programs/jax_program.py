"""Clipped gradient sums of each client by JAX: jit(vmap(grad)) and a segment sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from serve import Step, serve

CLASSES, CLIP_NORM = 10, 0.5
Layers = list[tuple[Any, Any]]


def open_row(model: str, clients: int, records: int) -> Step:
    """Return a compiled step over the lots of all clients, which gives the sums [clients, …]."""
    stream = np.random.default_rng(0)
    n = clients * records
    inputs = jnp.asarray(stream.standard_normal((n, 1, 28, 28)), jnp.float32)
    targets = jnp.asarray(stream.integers(0, CLASSES, n))
    owner = jnp.repeat(jnp.arange(clients), records)
    shapes: list[tuple[int, ...]] = [(32, 784), (CLASSES, 32)]
    if model == "cnn":
        shapes = [(16, 1, 8, 8), (32, 16, 4, 4), (32, 512), (CLASSES, 32)]
    weights = [
        (
            jnp.asarray(stream.standard_normal(s) / np.prod(s[1:]) ** 0.5, jnp.float32),
            jnp.zeros(s[0]),
        )
        for s in shapes
    ]
    logits = cnn if model == "cnn" else mlp
    clipped_sums = jax.jit(sums_of(logits, clients))
    return lambda: jax.block_until_ready(clipped_sums(weights, inputs, targets, owner))


def sums_of(logits: Callable[[Layers, Any], Any], clients: int) -> Callable[..., Any]:
    """Return the function that sums the clipped gradients of each client's records."""

    def loss(weights: Layers, x: Any, y: Any) -> Any:
        return -jax.nn.log_softmax(logits(weights, x))[y]

    def clipped_sums(weights: Layers, inputs: Any, targets: Any, owner: Any) -> Any:
        grads = jax.vmap(jax.grad(loss), (None, 0, 0))(weights, inputs, targets)
        leaves = jax.tree.leaves(grads)
        norms = jnp.sqrt(sum((g.reshape(len(g), -1) ** 2).sum(1) for g in leaves))
        scale = jnp.minimum(1.0, CLIP_NORM / norms)
        return [
            jax.ops.segment_sum(g * scale.reshape(-1, *[1] * (g.ndim - 1)), owner, clients)
            for g in leaves
        ]

    return clipped_sums


def mlp(weights: Layers, x: Any) -> Any:
    """Return the logits of one record."""
    (w1, b1), (w2, b2) = weights
    return w2 @ jax.nn.relu(w1 @ x.reshape(-1) + b1) + b2


def cnn(weights: Layers, x: Any) -> Any:
    """Return the logits of one record."""
    x = x[None]
    for (w, b), padding in zip(weights[:2], (2, 0), strict=True):
        x = jax.lax.conv_general_dilated(x, w, (2, 2), [(padding, padding)] * 2)
        x = jax.nn.relu(x + b[:, None, None])
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 1, 1), "VALID")
    return mlp(weights[2:], x)


if __name__ == "__main__":
    serve(open_row, ("jax", "jaxlib"))
