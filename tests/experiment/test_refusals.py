"""Parts that do not go together: each row of the table is hit; plan, dry run and run say the same."""

from __future__ import annotations

import random
import shlex

import pytest
from omegaconf import OmegaConf

import fedpriv
from fedpriv.common.config import flatten
from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.groups import GROUPS, options
from fedpriv.data.digits import Digits
from fedpriv.experiment import build
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.combinations import TABLE
from fedpriv.experiment.run import check
from fedpriv.privacy.core.trust import CENTRAL_TRUST

QUIET = ["dataset=digits", "runtime.progress=none", "runtime.plots=false", "rounds=1"]
MACROS = {
    "@dp": "algorithm=dp_fl epsilon=null",
    "@ldp": "algorithm=ldp_fedsgd epsilon=null noise_schedule=constant",
    "@ftrl": "algorithm=dp_ftrl partition.clients=12 algorithm.min_separation=2 rounds=3 epsilon=5",
    "@wei": "algorithm=wei_cdp partition.clients=10 partition.records=100 delta=0.01 epsilon=10",
    "@search": "algorithm=wei_cdp_optimal partition.clients=10 partition.records=100 delta=0.01 "
    "epsilon=50 algorithm.search.rounds=[2,5]",
    "@cdp": "algorithm=naseri_cdp partition=iid partition.clients=10 algorithm.client_rate=0.4",
    "@nldp": "algorithm=naseri_ldp partition=iid partition.clients=10 algorithm.clients_per_round=3",
    "@copies": "@dp algorithm.augmentation_multiplicity=3 algorithm.random_flip=true "
    "algorithm.random_crop=1",
    "@sums": "algorithm=dp_fl_server epsilon=null",
    "@released": "epsilon=null features=hog model=logistic features.normalization=released "
    "features.statistics_noise_multiplier=4 features.statistics_clip_norm=1",
    "@table": "dataset=csv dataset.path=table.csv dataset.label=y dataset.user=user "
    '"dataset.ranges={x: [0, 9]}"',
    "@bare": f"~dataset.normalize ~dataset.validation_records dataset._target_={__name__}.Bare",
    "@asks": "noise_schedule=recalculated noise_schedule.epsilon=5 noise_schedule.trigger=noised",
    "@pattern": "attack=pixel_pattern attack.trigger.size=2",
    "@buckets": "aggregation=bucketed_median aggregation.buckets=3 aggregation.tolerated=1",
}
REFUSED = {
    "budget_view must be sound with": """
        algorithm=fedavg accountant=published
        algorithm=dp_scaffold epsilon=3 budget_view=published
        @dp warm_start.records=clients budget_view=published""",
    "dataset needs read() and encode(rows) with publish": """
        @bare @dp publish=true > nothing tests the load() of bare""",
    "dataset.labels must be given": """
        @table @dp partition=iid publish=true > 'dataset.labels=[a, b]'""",
    "{found} must be another with": """
        @table @dp partition=shards publish=true dataset.labels=[a,b] > the partition (shards,
        @table @dp partition=natural publish=true dataset.labels=[a,b] partition.min_records=2
        @table @dp publish=true dataset.labels=[a,b] algorithm.sampling=fixed_size ~dataset.user""",
    "publish_test_metrics must be false with": """
        dataset=shakespeare algorithm=cdp_fedavg noise_schedule=constant publish=true \
        publish_test_metrics=true""",
    "model must be one that reads": """
        model=lstm_lm > reads numbers with dataset=digits
        dataset=shakespeare model=logistic > texts for the task language_model with dataset=shakespeare
        dataset=shakespeare model=lstm_classifier
        dataset=sentiment140 model=lstm_lm > texts for the task classification""",
    "noise_schedule, aggregation or": """
        @bare noise_schedule=validation_decay
        @bare @dp aggregation=fltrust
        @bare @dp warm_start.records=public""",
    "{found} is for": """
        @table algorithm=cdp_fedavg partition=dirichlet > dataset.user=user is for partition=natural
        @table @dp partition=iid partition.equal=true
        @table @dp partition=iid ~dataset.user +dataset.client=user > dataset.client=user is for""",
    "dataset.records must be null": """
        @table @dp partition=iid dataset.records=9 algorithm.sampling=fixed_size""",
    "partition.seed must be left out": """
        @table @dp partition=iid partition.seed=4 > got 4""",
    "algorithm={a.name} is not private": """
        algorithm=fedavg clipper=constant > algorithm=fedavg is not private
        algorithm=fedsgd noise_schedule=constant > takes clipper=none and noise_schedule=none""",
    "algorithm={a.name}: unit=record": f"""
        @dp algorithm._target_={__name__}.Trusting > does not go with central trust""",
    "algorithm.augmentation_multiplicity must be null": """
        @copies features=hog
        @copies dataset=adult
        @copies dataset=shakespeare model=lstm_lm
        @copies algorithm.random_crop=8""",
    "algorithm={a.name} takes noise_schedule=uniform_budget": """
        @search noise_schedule=constant > algorithm=wei_cdp_optimal takes noise_schedule=uniform_budget
        @search clipper=quantile""",
    "budget_view must be published, and paired null": """
        @search budget_view=sound accountant=gdp
        @search paired=one > with algorithm=wei_cdp_optimal""",
    "algorithm={a.name} takes one clip norm": """
        @ftrl clipper=quantile > algorithm=dp_ftrl takes one clip norm fixed in advance""",
    "clipper must be constant with": """
        @cdp algorithm.noise=as_printed clipper=quantile
        @nldp algorithm.noise=as_printed clipper=automatic""",
    "clipper=none leaves the sensitivity unbounded": """
        @dp clipper=none
        algorithm=ldp_fedsgd clipper=none""",
    "features.normalization must be": """
        @released algorithm=dp_scaffold > none with algorithm=dp_scaffold, got released
        @released algorithm=fedavg > none with algorithm=fedavg
        @released algorithm=ddp_fedavg noise_schedule=constant > none with algorithm=ddp_fedavg
        @released algorithm=dp_fl attack=alie > none with an attack
        @released @sums algorithm.clients_per_round=5 > none with algorithm.clients_per_round
        @released @sums algorithm.shares=skellam algorithm.sample_rate=1 > with algorithm.shares
        @released @sums algorithm.dropout=0.1 algorithm.tolerated_dropouts=2 > with algorithm.dropout
        @released @dp noise_schedule=validation_decay accountant=rdp > with a noise_schedule that
        @released @dp noise_schedule=validation_decay noise_schedule.beta=1 > with a noise_schedule that
        @released @sums noise_schedule=uniform_budget noise_schedule.epsilon=2 > a noise_schedule that
        @released @sums noise_schedule=calibrated noise_schedule.epsilon_per_draw=1 > .epsilon_per_draw
        @released @dp budget_view=published > none with budget_view=published
        @released @dp warm_start.records=public > none with warm_start.records""",
    "epsilon must be null with noise_schedule.loop=printed": """
        @wei noise_schedule=recalculated noise_schedule.loop=printed rounds=9 > whose last round""",
    "noise_schedule asks clients": """
        @sums @asks > trust=distributed
        algorithm=cdp_fedavg @asks > trust=central""",
    "noise_schedule is calibrated to epsilon": """
        @table @dp algorithm.sampling=fixed_size partition=natural noise_schedule=calibrated epsilon=5""",
    "noise_schedule must be another with": """
        @dp noise_schedule=larger_cohort > algorithm=dp_fl
        @ldp noise_schedule=larger_cohort""",
    "aggregation must be mean or bucketed_median": """
        algorithm=cdp_fedavg aggregation=median > algorithm=cdp_fedavg (central trust): a rule on uploads
        @cdp aggregation=krum > algorithm=naseri_cdp (central trust)
        @ftrl aggregation=median > algorithm=dp_ftrl (central trust)
        algorithm=ddp_fedavg aggregation=median > algorithm=ddp_fedavg (distributed trust)
        algorithm=ddp_fedavg algorithm.trust=central aggregation=median > (central trust)
        @sums aggregation=median > algorithm=dp_fl_server (distributed trust)""",
    "aggregation must be a rule on uploads": """
        @ldp @buckets > algorithm=ldp_fedsgd
        @dp @buckets
        algorithm=fedavg @buckets""",
    "aggregation must be mean with": """
        @ftrl @buckets > aggregation must be mean with algorithm=dp_ftrl
        @cdp algorithm.noise=as_printed @buckets""",
    "algorithm.optimizer must be another": """
        @ldp algorithm.optimizer=dp_adam_bc aggregation=median
        algorithm=cdp_fedavg algorithm.optimizer=dp_adam_bc @buckets
        @ldp algorithm.optimizer=dp_adam_bc attack=alie""",
    "attack must be none with algorithm.trust": """
        @sums attack=alie > attack must be none with algorithm.trust=distributed, got alie
        algorithm=ddp_fedavg epsilon=5 @pattern""",
    "attack must be none with algorithm.augmentation": """
        @copies @pattern > got pixel_pattern
        @copies attack=label_flip > got label_flip
        @copies attack=label_reversal""",
    "attack must be another with": """
        algorithm=fedsgd @pattern > algorithm=fedsgd, whose clients send no changes of weights
        @ldp @pattern
        @sums algorithm.trust=local attack=alie""",
    "attack.knows must be a list with {found[0]}": """
        algorithm=fedavg attack=ipm_optimal attack.knows=[noised_uploads] > a list with rule
        algorithm=fedavg attack=a3fl attack.knows=[rule] > a list with global_models""",
    "attack.knows must be a list without": """
        algorithm=cdp_fedavg epsilon=null attack=alie attack.knows=[noised_uploads] > without noised_uploads
        @dp attack=alie attack.knows=[raw_uploads] attack.omniscient=true > without raw_uploads""",
    "attack.knows must be null": """
        algorithm=cdp_fedavg epsilon=null attack=alie attack.knows=[raw_uploads] > raw_uploads""",
    "attack.dp_steps must be skip": """
        @ldp attack=alie attack.dp_steps=follow attack.knows=[noised_uploads]""",
    "attack.boost must be a number": """
        algorithm=fedavg aggregation=median @pattern attack.boost=replacement
        @cdp algorithm.optimizer=adam @pattern attack.boost=replacement""",
    "attack.trigger needs {found}": """
        algorithm=fedavg attack=words > texts for next-word prediction, which dataset=digits does not have
        algorithm=fedavg attack=sentiment > labelled texts
        algorithm=fedavg attack=pixel_pattern attack.trigger.target=10 > a label 10
        algorithm=fedavg attack=pixel_pattern attack.trigger.size=8 > images of 9 pixels a side
        algorithm=fedavg features=hog @pattern > images (features=none)""",
    "shadow must be null with an attack": """
        algorithm=fedavg attack=alie "shadow={half: 0, nonmembers: test, seed: 1}\"""",
    "epsilon must be null with algorithm": """
        algorithm=fedavg epsilon=2 > epsilon must be null with algorithm=fedavg (no privacy), got 2""",
    "epsilon must be null, got {s.epsilon:g}: {found}": """
        dataset=shakespeare model=lstm_lm algorithm=dp_fl dataset.vocabulary=private epsilon=3 > vocabulary
        @ldp epsilon=8 attack=alie attack.knows=[raw_uploads] attack.omniscient=true > raw_uploads is released
        @dp epsilon=8 warm_start.records=clients > warm_start is released""",
    "rounds must be given": """
        @dp rounds=null""",
    "audit must be without epsilon": """
        algorithm=fedavg audit=epsilon:20 > a run without privacy
        @dp noise_schedule=none audit=epsilon:20 > a run without privacy
        @dp attack=alie audit=epsilon:20 > an attack
        @ldp audit=epsilon:20 > algorithm=ldp_fedsgd
        @dp warm_start.records=clients audit=epsilon:20 > warm_start.records=clients""",
    "publish must be false": """
        algorithm=fedavg publish=true > a run without privacy
        @dp noise_schedule=none publish=true > a run without privacy
        @dp warm_start.records=clients publish=true > a run without privacy
        @search publish=true > whose search keeps its runs
        @dp paired=one publish=true > paired
        @ldp attack=alie publish=true > an attack""",
    "tracker must be none": """
        @dp tracker=wandb publish=true > got wandb
        @dp tracker=wandb runtime.diagnostics=false > got wandb""",
    "algorithm.{found}": """
        @wei algorithm.clients=1000 > algorithm.clients must be 10, the value of partition.clients
        @wei algorithm.sensitivity=weights algorithm.records=5 > algorithm.records must be 100""",
}
"""Start of a row's message → configurations that this row refuses, and what they are told."""


class Bare:
    """A data set that extends nothing of fedpriv, and has no public split."""

    name, train_records, input_shape, classes = "bare", 1437, (1, 8, 8), 10

    def load(self):
        return Digits(0).load()


class Trusting(fedpriv.algorithms.DpFl):
    trust = CENTRAL_TRUST


def words_of(line: str) -> list[str]:
    """The words of a configuration, with every macro replaced by its own."""
    found = []
    for word in shlex.split(line):
        found += words_of(MACROS[word]) if word in MACROS else [word]
    return found


@pytest.mark.few(15)
@pytest.mark.parametrize("start", REFUSED)
def test_what_does_not_go_together_is_refused_by_its_row(start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = (f"{user},{user % 9},{'ab'[user % 2]}\n" for user in range(40) for _ in range(9))
    (tmp_path / "table.csv").write_text("user,x,y\n" + "".join(rows))
    for line in REFUSED[start].strip().splitlines():
        line, _, wanted = line.partition(" > ")
        config = fedpriv.compose([*QUIET, *words_of(line)])
        parts = build._make_parts(config)
        refused_by = [row.message for row in TABLE if row.when(parts)]
        assert refused_by[0].startswith(start), line
        with monkeypatch.context() as patch:
            patch.setattr(build, "_make_parts", lambda config, made=parts: made)
            with pytest.raises(ConfigError) as refused:
                build_parts(config)
        assert wanted in str(refused.value)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("@released @dp audit=epsilon:20", "does not go with features.normalization=released"),
        (
            "@dp dataset=shakespeare model=lstm_lm audit=epsilon:20:mislabelled",
            "KIND must be direction",
        ),
    ],
)
def test_canaries_are_refused_where_none_can_be_planted(line, wanted):
    with pytest.raises(ConfigError, match=wanted):
        build_parts(fedpriv.compose([*QUIET, *words_of(line)]))


def test_no_row_is_dead():
    assert [[s for s in REFUSED if row.message.startswith(s)] for row in TABLE] == [
        [s] for s in REFUSED
    ]


# ---- whatever is chosen at random

VALUES = {
    "epsilon": ("null", "2"),
    "budget_view": ("sound", "published"),
    "publish": ("true",),
    "publish_test_metrics": ("true",),
    "paired": ("one",),
    "audit": ("epsilon:4", "epsilon:4:mislabelled"),
    "runtime.engine": ("fast", "opacus"),
    "runtime.diagnostics": ("false",),
    "partition.clients": ("1", "40"),
    "algorithm.clients_per_round": ("1", "50"),
    "algorithm.trust": ("local", "central", "distributed"),
    "algorithm.shares": ("skellam",),
    "algorithm.noise": ("as_printed",),
    "algorithm.clients": ("3",),
    "attack.attackers": ("0", "50"),
    "attack.boost": ("replacement",),
    "noise_schedule.epsilon": ("1",),
    "clipper.reading": ("unclipped",),
}


def configuration(draw: random.Random) -> list[str]:
    """Return some options and keys at random, many of which do not go together."""
    groups = draw.sample([group for group in GROUPS if group != "dataset"], draw.randint(1, 5))
    chosen = [f"{group}={draw.choice([name for name, _ in options(group)])}" for group in groups]
    try:
        config = fedpriv.compose([*QUIET, *chosen])
    except FedprivError:
        return chosen
    present = set(flatten(OmegaConf.to_container(config)))
    usable = [key for key in sorted(VALUES) if "." not in key or key in present]
    keys = draw.sample(usable, draw.randint(0, 3))
    return [*chosen, *(f"{key}={draw.choice(VALUES[key])}" for key in keys)]


def sentence(action, *overrides: str) -> str:
    """Return the error that an action on a configuration ends with, or nothing."""
    try:
        action(fedpriv.compose([*QUIET, *overrides]))
    except FedprivError as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.thorough
@pytest.mark.usefixtures("wide_cells")
def test_plan_dry_run_and_run_refuse_in_one_sentence(tmp_path, monkeypatch):
    """A run that is not refused is not made: others are about these."""
    monkeypatch.chdir(tmp_path)
    draw, refused = random.Random("conflicts 0"), 0
    for _ in range(8):
        chosen = configuration(draw)
        planned = sentence(build_parts, *chosen)
        dry = sentence(fedpriv.run, *chosen, "dry_run=true")
        if planned:
            refused += 1
            swept = sentence(lambda config: check(config, {}), *chosen)
            assert dry == swept == planned, chosen
        if dry:
            assert sentence(fedpriv.run, *chosen) == dry, chosen
    assert refused
