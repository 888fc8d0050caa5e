"""The caveats of the privacy statement: sentences that a reader of the numbers must know.

The texts are stored in ``privacy.json`` and ``privacy.txt`` of every run. The short part of ``privacy.txt``
shows each caveat up to its first full stop or colon, so a caveat begins with what matters most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedpriv.common.words import counted

SEES_HIDDEN = "attackers see what the trust model hides"
"""Mark on plans, results, reports and figures of runs with ``attack.omniscient=true``."""
GENERAL_CAVEATS = (
    "Test records are not protected, and best_test_accuracy is chosen by looking at them.",
    "The choice of hyper-parameters is not counted: choosing them by looking at several private runs on the "
    "same data costs more than the epsilon of one run.",
)
SEEDS = (
    "seed and noise_seed must stay secret: lots, cohorts, batches and noise follow from them, from the "
    "configuration and from the data. Whoever knows or guesses them can subtract the noise, and the "
    "guarantee is lost. The default is 0, and the initial weights tell whether a guess is right."
)
ENTROPY = (
    "The file secret_key must stay secret: lots, cohorts, batches and noise follow from it (256 bits of the "
    "operating system's entropy). Whoever reads it can subtract the noise, and the guarantee is lost. Every "
    "further published run on the same data adds its own epsilon."
)
TAIL = 2.4e-16
"""Probability, for one of a pair of normals, that the pair lies beyond 8.4 standard deviations. There not
every output on the grid is possible under a neighbour (:mod:`fedpriv.common.secret_streams`)."""


def aborted_words(aborted: int, rounds: int) -> str:
    """Return the caveat of a run in which rounds lost too many clients."""
    return (
        f"{aborted} of {counted(rounds, 'round')} {'was' if aborted == 1 else 'were'} aborted: fewer clients "
        "stayed than the noise needs, so nothing was released, nobody was charged and the weights stayed."
    )


RECOUNTED = (
    "The running totals of the run differed from those of its ledger, which was priced again at its end "
    "({differing}). Every epsilon here is that of the larger count."
)
UNIT_CAVEATS = {
    "record": (
        "The sizes n_k of the clients' data sets are treated as public: they set the denominators L "
        "and the weights p_k.",
        "A person with k records at one client is protected less: by about k times epsilon, at a larger "
        "delta. The guarantee is for one record.",
        "A person with records at several clients is protected less: the epsilons at these clients add up. "
        "The guarantee is for a record at one client.",
    ),
    "client": (
        "A person who is several clients is protected less: the epsilons of these clients add up. The "
        "guarantee is for all records of one client together.",
        "The number of clients K is public.",
    ),
}
DIAGNOSTICS = (
    "train_loss, gradient_norm (under attack also update_norm_honest) in metrics.csv, the loss in "
    "run.log, the curve of private lots in plots/loss_by_*.png (exact averages over private lots)",
    "clients.csv (gradient norm of each client)",
    "accuracy of each client in clients.csv and, of the worst tenth, in summary.json (it follows from the "
    "exact counts of a client's labels, or from its own test records)",
    "records_not_finite in summary.json (exact count)",
    "plots/labels_per_client.png (exact label counts) and plots/gradient_norm.png",
    "seed and noise_seed in config.yaml (who knows them knows lots and cohorts and can subtract the noise)",
    "seconds (cpu_seconds) in metrics.csv, summary.json and run.log (how long a round takes tells how many "
    "took part)",
    "checkpoint.pt (optimiser moments are functions of released values; the seeds are in it)",
    "audit/, and what audits found in summary.json, if there were any (attacks on private data)",
)
SECRET_COHORT = "participation.csv (who took part must stay secret: the guarantee counts on it)"
CAVEATS = {
    "fixed_size": (
        "Lots have a fixed size: the sound analysis charges sampling without replacement under replace-one "
        "adjacency with sensitivity 2C, while the published analysis pretends Poisson sampling."
    ),
    "correlated": (
        "The noise of later rounds depends on that of earlier ones: the run is charged as a whole in its "
        "first round, by the sensitivity of its strategy under its participation pattern (ledger.csv names "
        "both). A run that ends early has the same epsilon. Each cohort was checked against the "
        "participation pattern. checkpoint.pt holds noise that later rounds use again: it is as secret as "
        "the seeds."
    ),
    "secret_turns": (
        "Who joins a round must stay secret: each client joins in its turn with probability "
        "algorithm.client_rate, and the guarantee relies on that."
    ),
    "own_model": (
        "The model is code of your own. That each record is computed as if it were alone was probed, not "
        "proven, with random records in small lots and in lots of the run's size. The probe cannot exclude "
        "a model that mixes records in other lots or of a certain kind, or that writes files."
    ),
    "run_again": (
        "Rounds were run again after a crash and released something else, with the same noise. Both releases "
        "are charged as if their noise were independent. Whoever sees both can subtract the noise."
    ),
    "search": (
        "The number of rounds was found by runs on the same data. The sound epsilon and the ledger count "
        "all these runs, with every client in every round. The published epsilon counts the last run alone."
    ),
    "paired": (
        "This run is paired: it has the lots, cohorts and noise of every other run with the same name "
        "(paired) and the same seeds, so that the runs can be compared. Each epsilon holds only if a single "
        "run of the pair is seen. Together their epsilon is infinite, because the difference of two runs has "
        "no noise."
    ),
    "cluster": (
        "A Ray cluster computed (runtime.cluster=ray): its nodes got the records, and sent sums without "
        "noise. Whoever runs these nodes, or reads their memory and disks, sees both: Ray writes to disk "
        "what its memory cannot hold, and encrypts no file. No epsilon covers them. No key was sent to a "
        "node, but a hostile one can take it: Ray runs what nodes answer."
    ),
    "canaries": (
        "Canaries were planted in this run for its audit. They are made-up records, or clients, which take "
        "part as all others do. They cost accuracy, and the model was trained with them."
    ),
    "mislabelled": (
        "The canaries are copies of training inputs with wrong labels. Every epsilon is that of one record, "
        "or client. A copied record is in the run twice, with its own label and with a wrong one, so it is "
        "protected by about twice epsilon, at a larger delta. At client level the same holds for its client, "
        "once more for each of its copied records."
    ),
    "aggregation": (
        "The server combines uploads by a rule instead of their mean (aggregation). Each upload was "
        "released, and entered into the ledger, before the rule saw it. So the rule is post-processing: "
        "every epsilon is what it would be with aggregation=mean."
    ),
    "buckets": (
        "The server combines the noised means of buckets of clients (aggregation). Each client draws its "
        "bucket by itself, whoever else takes part, so a client moves the sum of one bucket. The sums of "
        "all buckets are one release with the sensitivity of one sum, and each has the noise of one sum. "
        "With B buckets each coordinate of the median has about √(πB/2) times the noise of the mean. "
        "The rule is post-processing: every epsilon is what it would be with aggregation=mean."
    ),
    "attackers": (
        "Some clients are attackers (summary.json names them). They are not charged, and every epsilon is "
        "that of honest clients. Epsilon does not count what attackers know of honest clients' records and "
        "send themselves (with attack=label_flip they send copies of some)."
    ),
    "omniscient": (
        "The simulated attackers see what the trust model hides (attack.omniscient): uploads of honest "
        "clients without noise. What the attackers send depends on these uploads and reaches the model, so "
        "no finite epsilon is sound."
    ),
    "root": (
        "The validation records that the aggregation rule trains on are treated as public: they were held "
        "out of the training records and are not protected."
    ),
    "warm_start": (
        "The validation records that the initial weights were trained on (warm_start) are treated as public: "
        "they were held out of the training records and are not protected."
    ),
    "warm_start_on_clients": (
        "The initial weights come from all clients' records, without noise "
        "(warm_start.records=clients). They reveal these records, so no finite epsilon is sound, and no "
        "published theorem is about this run."
    ),
    "validation": (
        "The validation records that the noise schedule reads are treated as public: they were held "
        "out of the training records and are not protected."
    ),
    "known": (
        "The numbers of records and the split into clients, validation and test records are public: the data "
        "are published or generated ones, split as their protocols split them."
    ),
    "declared_records": (
        "The number of training records is declared (dataset.records): lot sizes and weights follow from it "
        "and from the number of clients, and not from how many records a client has."
    ),
    "delta": (
        "Delta is not smaller than 1/n for the smallest client: a mechanism that publishes a record "
        "outright with probability delta would satisfy such a guarantee."
    ),
    "delta_of_clients": (
        "Delta is not smaller than 1/K: a mechanism that publishes a client's data outright with "
        "probability delta would satisfy such a guarantee."
    ),
    "large": (
        "Epsilon is large: beyond about 10 a guarantee says little about what an attacker can learn."
    ),
    "diverged": (
        "The run diverged: its weights, or their loss on test or validation records, were no longer finite, "
        "so it stopped. These values are released or public. A stop that depends on released values is "
        "covered by the epsilon of the whole planned run."
    ),
    "interrupted": (
        "The run was interrupted and can be resumed. If the decision to stop came from its results, it is "
        "covered by the epsilon of the whole planned run."
    ),
}


DIVERGING = "a loss was over ten times that of guessing, and the test loss is still above it"
"""Words on a run with ``diverging`` in its summary."""


def own_code(targets: Mapping[str, str]) -> str:
    """Return the caveat on code outside fedpriv.

    Args:
        targets: The ``_target_`` of each such part, by configuration key.
    """
    named = ", ".join(f"{key} ({target})" for key, target in targets.items())
    return (
        f"Code outside fedpriv takes part: {named}. What it released was compared with what was announced "
        "and charged, but nothing proves that this code does what it says. fedpriv verify tests that. "
        "Nobody checks statistics, label sets, class weights, splits or resampling made where a data set "
        "reads its rows, in constructors or kept in globals, what parts keep from earlier rounds, initial "
        "weights from a file, one person in several rows, what trackers export, constants in a loss, and "
        "files that parts read."
    )


def split_by_count(keys: Sequence[str]) -> str:
    """Return the caveat on settings by which one more record moves others."""
    return (
        "The number of records, the labels and the split are taken as public: with "
        f"{' and '.join(keys)} one more record changes which other records are protected, or by whom they "
        "are held, and no epsilon covers that."
    )


def own_sampling(names: Sequence[str]) -> str:
    """Return the caveat on classes outside fedpriv, given by name, that draw cohorts or lots."""
    return (
        f"Cohorts or lots are drawn by code outside fedpriv ({', '.join(names)}). They were not drawn a "
        "second time to compare them with the charged sampling, so epsilon relies on that code."
    )


def floating_point(numbers: int) -> str:
    """Return the caveat on floating point, for a client that releases at most ``numbers`` values.

    Each value adds its tail mass to δ, so the bound is ``numbers`` times :data:`TAIL`.
    """
    return (
        f"Floating point adds at most {TAIL * numbers:.0e} to delta: by the tails of the noise. Noise is "
        "drawn in double precision and rounded to a public grid of at most 2^-14 of its standard deviation. "
        "Because sums are rounded, a record or client moves them by at most (1 + 1e-5) C rather than C, as "
        "was measured."
    )


def diagnostic_items(secret_cohort: bool) -> list[str]:
    """Return the files and values of a folder with diagnostics that are not private."""
    return [*DIAGNOSTICS, SECRET_COHORT] if secret_cohort else list(DIAGNOSTICS)
