"""Membership attacks: a score for each record, higher for a record that looks like a member.

loss        -ℓ(θ_T). Yeom et al., "Privacy risk in machine learning" (CSF 2018).

calibrated  ℓ(θ_0) - ℓ(θ_T): how far the record's loss has fallen. This is the difference of scores before and
            after an update of Jagielski et al., "How to combine membership-inference attacks on multiple
            updated models" (PoPETs 2023), with the whole training as the update. It is also the difficulty
            calibration of Watson et al. (ICLR 2022) with a reference that saw no record. The initial weights
            θ_0 depend on the seed alone. Untrained, they know little of how hard a record is; a trained
            reference (shadow models) would correct for more.

white_box   A classifier of what θ_0, the snapshots and θ_T say of the record: its loss, the norm of its
            gradient, and the gradient's inner product and cosine with the weights' next movement. After Nasr,
            Shokri, Houmansadr (S&P 2019), with these features in place of a network.

blind       No attack: a classifier of the records themselves, without the model. If its AUC is not .5,
members
            and non-members are different kinds of records, or were split by a rule that shows in them. Then
            the attacks may find no more than that (Das, Zhang, Tramèr, "Blind baselines beat membership
            inference attacks", 2024).

ℓ is the loss of a record, θ_0 the initial and θ_T the last weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedpriv.algorithms.run_context import RunContext
from fedpriv.common.random_streams import numpy_stream
from fedpriv.data.records import Records
from fedpriv.tools.audit.classifier import out_of_fold
from fedpriv.tools.audit.records import Candidates, gradients, losses

LOSS, CALIBRATED, WHITE_BOX, BLIND = "loss", "calibrated", "white_box", "blind"
SEEN = ("loss", "gradient norm", "inner product", "cosine")
"""The features of the white-box attack, in the order of their columns."""
_WIDTH = 256  # numbers of a record that the blind classifier sees, if the record has more


def loss_scores(context: RunContext, last: Tensor, candidates: Candidates) -> np.ndarray:
    """Return -ℓ(θ_T) of each candidate [n]. The model has the weights θ_T = ``last`` afterwards."""
    return -losses(context.model, last, candidates.records)


def calibrated_scores(
    context: RunContext, first: Tensor, last: Tensor, candidates: Candidates
) -> np.ndarray:
    """Return ℓ(θ_0) - ℓ(θ_T) of each candidate [n], the decrease of its loss.

    The model has the weights θ_T afterwards.

    Args:
        context: The context of the run.
        first: θ_0, the weights before the first round [d].
        last: θ_T, the final weights [d].
        candidates: The records that may be members.
    """
    before, after = (losses(context.model, w, candidates.records) for w in (first, last))
    return before - after


def white_box_scores(
    context: RunContext, trajectory: Sequence[Tensor], candidates: Candidates, seed: int
) -> np.ndarray:
    """Return P(member) of each candidate by a classifier that was trained on other candidates [n].

    The features of a candidate are those of :func:`observed` at each of the known weights.

    Args:
        context: Model, engine and data of the run. The model has the last weights afterwards.
        trajectory: The weights [d] that the attacker knows, from the initial to the last; at least two.
        candidates: Members and non-members.
        seed: Seed of the classifier.
    """
    # Each of the weights is seen with the movement that follows, the last with the one before.
    movements = [after - before for before, after in itertools.pairwise(trajectory)]
    movements.append(movements[-1])
    features = [
        observed(context, weights, movement, candidates.records)
        for weights, movement in zip(trajectory, movements, strict=True)
    ]
    return out_of_fold(np.concatenate(features, axis=1), candidates.is_member, seed)


def observed(
    context: RunContext, weights: Tensor, movement: Tensor, records: Records
) -> np.ndarray:
    """Return the features ``SEEN`` of each record.

    Args:
        context: Model and engine of the run.
        weights: The weights [d] at which loss and gradient are computed.
        movement: The movement of the weights [d] that the gradient is compared with.
        records: The records [n].

    Returns:
        Loss, gradient norm, inner product and cosine [n, 4], with large numbers for infinite ones.
    """
    length = torch.linalg.vector_norm(movement)
    rows = []
    for gradient in gradients(context.model, context.engine, weights, records):
        norm, inner = torch.linalg.vector_norm(gradient, dim=1), gradient @ movement
        cosine = inner / (norm * length).clamp_min(1e-30)
        rows.append(torch.stack([norm, inner, cosine], dim=1))
    loss = losses(context.model, weights, records)
    table = np.column_stack([loss, torch.cat(rows).double().cpu().numpy()])
    return np.nan_to_num(table, nan=0.0, posinf=1e30, neginf=-1e30).clip(-1e30, 1e30)


def blind_scores(candidates: Candidates, classes: int, seed: int) -> np.ndarray:
    """Return P(member) of each candidate by a classifier of the records alone [n].

    Args:
        candidates: Members and non-members.
        classes: Number of labels.
        seed: Seed of the classifier and of the random directions.
    """
    return out_of_fold(_plain(candidates.records, classes, seed), candidates.is_member, seed)


def _plain(records: Records, classes: int, seed: int) -> np.ndarray:
    """Return the numbers of each record [n, f], as the blind classifier sees them.

    Inputs are taken as they are, or through ``_WIDTH`` random directions if they are wide. A text becomes the
    count of each token (ids modulo ``_WIDTH``). The label is added where there is one.
    """
    inputs, targets = records.inputs.cpu(), records.targets.cpu()
    if inputs.is_floating_point():
        features = inputs.flatten(1).numpy()
        if features.shape[1] > 2 * _WIDTH:
            stream = numpy_stream(seed, "audit_blind")
            features = features @ stream.standard_normal((features.shape[1], _WIDTH)).astype(
                np.float32
            )
    else:
        tokens = inputs.flatten(1)
        counts = torch.zeros(len(tokens), _WIDTH)
        counts.scatter_add_(1, tokens % _WIDTH, (tokens != 0).float())
        features = counts.numpy()
    if targets.ndim > 1 or classes > _WIDTH:
        return features
    return np.concatenate([features, functional.one_hot(targets, classes).numpy()], axis=1)
