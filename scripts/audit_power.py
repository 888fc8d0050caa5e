"""How much an audit of ε finds of what there is, on digits: our scores against those of the ledger's own
pair of distributions, with the same estimators and as many canaries.

    python scripts/audit_power.py --audits 200 --out outputs/reference/privacy/audit_power/power.csv

    python scripts/audit_power.py --table --out outputs/reference/privacy/audit_power/canaries.csv

    python scripts/audit_power.py --wrong-labels "digits, 1 client" --audits 20 \\
        --out outputs/reference/privacy/audit_power/wrong_labels.csv

The first has rows of one_run and f-DP bounds, ours and ideal (mean, median, standard deviation over the
audits), and the ratio of the means with its 95 % interval (bootstrap over audits). The second: what the same
bounds find of a Gaussian mechanism, by its ε and the number of canaries. The third: what mislabelled canaries
find by queries of the final model, beside canaries of one direction in runs like theirs.
docs/guide/leakage.md quotes them.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np

from fedpriv.attacks.canary_scores import ideal_scores
from fedpriv.common import config as configuration
from fedpriv.data.names import DIRECTION, MISLABELLED
from fedpriv.store.canary_file import RELEASES
from fedpriv.tools.audit.epsilon_evaluate import AuditSetup, family_bound, one_run_bound
from fedpriv.tools.audit.epsilon_families import GaussianFamily, gaussian_mu
from fedpriv.tools.audit.epsilon_guesses import Scores
from fedpriv.tools.audit.epsilon_trial import train_with_canaries

DELTA, SIGNIFICANCE = 1e-5, 0.05
CASES = {
    # (q, T): σ at which ε(1e-5) is about 4.38, by PLD
    (1.0, 1): 1.0,
    (1.0, 50): 7.0671,
    (0.1, 100): 1.31023,
}
_MLP = [
    "algorithm=dp_fl", "model=mlp", "model.hidden=128", "partition=iid", "clipper.clip_norm=10",
    "algorithm.optimizer=adam",
]  # fmt: skip
_DIGITS = [
    *_MLP, "dataset=digits", "rounds=100", "algorithm.sample_rate=1", "algorithm.learning_rate=0.03",
]  # fmt: skip
_SIGMAS = {"none": None, "8": 6.0023, "2": 19.9382}  # ε(1e-5) of 100 Gaussians
WRONG_LABELS = {
    "digits, 1 client": ([*_DIGITS, "partition.clients=1"], _SIGMAS, 500),
    "digits, 10 clients": ([*_DIGITS, "partition.clients=10"], _SIGMAS, 500),
    "MNIST, 10 clients": (
        [*_MLP, "dataset=mnist", "partition.clients=10", "rounds=200", "algorithm.sample_rate=0.1",
         "algorithm.learning_rate=0.01"],
        {"none": None, "8": 1.1298, "2": 3.0046}, 1000,
    ),
}  # fmt: skip
RATE = {"dp_fl": "sample_rate", "cdp_fedavg": "client_rate"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--audits", type=int, default=200)
    parser.add_argument("--ideal", type=int, default=1000, help="simulated ones")
    parser.add_argument("--canaries", type=int, default=600)
    parser.add_argument(
        "--out", type=Path, default=Path("outputs/reference/privacy/audit_power/power.csv")
    )
    parser.add_argument(
        "--table", action="store_true", help="bounds by ε and canaries; trains nothing"
    )
    parser.add_argument(
        "--wrong-labels", choices=WRONG_LABELS, help="mislabelled canaries and others, in such runs"
    )
    given = parser.parse_args()
    if given.table:
        return write_table(given.out)
    if given.wrong_labels:
        return write_wrong_labels(given.out, given.audits, given.wrong_labels)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    rows = list(csv.DictReader(given.out.open(encoding="utf-8"))) if given.out.exists() else []
    done = {(row["algorithm"], float(row["sample_rate"]), int(row["rounds"])) for row in rows}
    for rate, rounds in CASES:
        for algorithm in RATE:
            if (algorithm, rate, rounds) in done:
                continue  # found by a command that was stopped
            rows += measure(algorithm, (rate, rounds), given.audits, given.canaries, given.ideal)
            with open(given.out, "w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, rows[0], lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)


def write_table(out: Path) -> None:
    """Median and standard deviation of the bounds on a Gaussian mechanism."""
    stream = np.random.default_rng(0)
    rows = []
    for epsilon in (1, 2, 4, 8):
        mu = gaussian_mu(epsilon, DELTA)
        for canaries in (100, 300, 1000, 3000, 10_000):
            found = []
            for _ in range(40):
                coins = stream.random(canaries) < 0.5
                scores = Scores(stream.standard_normal(canaries) + mu * coins, coins)
                found.append(_bounds(scores, GaussianFamily(DELTA)))
            row = {"epsilon": epsilon, "canaries": canaries}
            for name, values in zip(("one_run", "f_dp"), np.array(found).T, strict=True):
                row |= {name: _short(np.median(values)), f"{name}_sd": _short(values.std(ddof=1))}
            rows.append(row)
            print(row, flush=True)
    with open(out, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_wrong_labels(out: Path, audits: int, name: str) -> None:
    """Mean and standard deviation of both bounds by ε, kind of canary and observer, behind what is there."""
    rows = list(csv.DictReader(out.open(encoding="utf-8"))) if out.exists() else []
    overrides, sigmas, canaries = WRONG_LABELS[name]
    for epsilon, sigma in sigmas.items():
        noise = ["noise_schedule=none"]
        if sigma:
            noise = ["noise_schedule=constant", f"noise_schedule.noise_multiplier={sigma}"]
        config = configuration.compose([*overrides, *noise, "epsilon=null"])
        for canary in (DIRECTION, MISLABELLED):
            started, found = time.process_time(), {}
            for seed in range(audits):
                trial = train_with_canaries(config, canaries, config.rounds, seed, canary=canary)
                setup = AuditSetup(DELTA, 1 - SIGNIFICANCE, False, trial.released)
                family = setup.family() or GaussianFamily(DELTA)
                for observer, scores in trial.scores.items():
                    found.setdefault(observer, []).append(_bounds(scores, family))
            for observer, values in found.items():
                row = {"data": name, "epsilon": epsilon, "canary": canary, "observer": observer}
                row |= {"canaries": canaries, "audits": len(values)}
                for method, own in zip(("one_run", "f_dp"), np.array(values).T, strict=True):
                    sd = own.std(ddof=1) if len(own) > 1 else np.nan
                    row |= {method: _short(own.mean()), f"{method}_sd": _short(sd)}
                rows.append(row | {"cpu_seconds": round(time.process_time() - started, 1)})
                print(rows[-1], flush=True)
            with open(out, "w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, rows[0], lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)


def measure(
    algorithm: str, case: tuple[float, int], audits: int, canaries: int, simulated: int
) -> list[dict[str, object]]:
    """Rows of one configuration."""
    (rate, rounds), started = case, time.process_time()
    overrides = [
        "dataset=digits", f"algorithm={algorithm}", "epsilon=null", f"rounds={rounds}",
        "noise_schedule=constant", f"noise_schedule.noise_multiplier={CASES[case]}",
        f"algorithm.{RATE[algorithm]}={rate}",
    ]  # fmt: skip
    config = configuration.compose(overrides)
    stream = np.random.default_rng(0)
    ours, ideal = [], []
    for seed in range(audits):
        trial = train_with_canaries(config, canaries, rounds, seed)
        if not seed:
            family = AuditSetup(DELTA, 1 - SIGNIFICANCE, False, trial.released).family()
        ours.append(_bounds(trial.scores[RELEASES], family))
    for _ in range(simulated):
        coins = stream.random(canaries) < 0.5
        ideal.append(_bounds(Scores(ideal_scores(trial.released, coins, stream), coins), family))
    found = []
    for number, method in enumerate(("one_run", "f_dp")):
        one, other = np.array(ours)[:, number], np.array(ideal)[:, number]
        low, high = _interval(one, other, stream)
        found.append(
            {
                "algorithm": algorithm, "sample_rate": rate, "rounds": rounds,
                "noise_multiplier": CASES[case], "canaries": canaries, "audits": audits,
                "ideal_audits": simulated,
                "method": method,
                **_three("", one), **_three("ideal_", other),
                "ratio": _short(one.mean() / other.mean()),
                "ratio_low": _short(low), "ratio_high": _short(high),
                "cpu_seconds": round(time.process_time() - started, 1),
            }
        )  # fmt: skip
        print(found[-1], flush=True)
    return found


def _three(name: str, values: np.ndarray) -> dict[str, float]:
    found = {"mean": values.mean(), "median": np.median(values), "sd": values.std(ddof=1)}
    return {f"{name}{key}": _short(value) for key, value in found.items()}


def _short(value: float) -> float:
    return round(float(value), 4)


def _bounds(scores: Scores, family: object) -> tuple[float, float]:
    return one_run_bound(scores, DELTA, SIGNIFICANCE), family_bound(scores, family, SIGNIFICANCE)


def _interval(
    ours: np.ndarray, ideal: np.ndarray, stream: np.random.Generator
) -> tuple[float, float]:
    draws = stream.integers(len(ours), size=(10_000, len(ours)))
    others = stream.integers(len(ideal), size=(10_000, len(ideal)))
    low, high = np.quantile(ours[draws].mean(1) / ideal[others].mean(1), [0.025, 0.975])
    return float(low), float(high)


if __name__ == "__main__":
    main()
