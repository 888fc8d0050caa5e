"""How accurate finished runs are for each client: test records by label, weighted by its shares of labels.

    python scripts/client_accuracy.py RUN [RUN ...]

It reads the clients' labels without noise, so what it prints is for public data, or for the clients alone.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from fedpriv.tools.audit.subject import open_run

_AT_ONCE = 2000


def accuracy_of_clients(run: str) -> np.ndarray:
    """Σ_labels (share of the label at client k) (accuracy on test records of the label), for each k [K]."""
    subject = open_run(run, device="cpu")
    data, model = subject.problem.data, subject.problem.model
    model.flat.copy_(subject.final)
    with torch.no_grad():
        found = [model(inputs).argmax(1) for inputs in data.test.inputs.split(_AT_ONCE)]
    right = (torch.cat(found) == data.test.targets).numpy()
    labels = data.test.targets.numpy()
    of_label = np.array([right[labels == label].mean() for label in range(data.classes)])
    return data.labels_per_client @ of_label / data.records_per_client


def main(runs: list[str]) -> None:
    print("run: lowest, mean, highest of the clients (%)")
    for run in runs:
        own = 100 * accuracy_of_clients(run)
        print(f"{run}: {own.min():.2f}, {own.mean():.2f}, {own.max():.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
