"""From a figure to its runs: which run is which, where it is, and what there is of it."""

from __future__ import annotations

import json
import re

import pytest
from omegaconf import OmegaConf

from fedpriv.common.config import compose, dump, identity
from fedpriv.common.errors import ConfigError
from fedpriv.store.folder import FINISHED
from fedpriv.study.figures.jobs import at, distinct


def folders(jobs) -> list[str]:
    return [job.folder.path.name for job in jobs]


def leave(job, stop_reason: str | None) -> None:
    """What a run leaves that ended so; None: that was killed."""
    job.folder.path.mkdir(parents=True, exist_ok=True)
    job.folder.config.write_text(dump(compose(job.overrides)))
    if stop_reason is not None:
        job.folder.summary.write_text(json.dumps({"stop_reason": stop_reason}))


def test_a_job_is_a_curve_of_a_group_with_one_seed(figure, jobs_of):
    assert [job.label for job in jobs_of(figure)] == [
        "digits/loud/seed 0", "digits/quiet/seed 0", "digits/loud/seed 1", "digits/quiet/seed 1",
    ]  # fmt: skip


def test_a_curve_can_have_fewer_seeds_than_its_group(read, tiny, jobs_of):
    tiny["curves"]["loud"]["seeds"] = 1
    figure = read(tiny)
    assert [job.label for job in jobs_of(figure)] == [
        "digits/loud/seed 0", "digits/quiet/seed 0", "digits/quiet/seed 1",
    ]  # fmt: skip
    tiny["curves"]["loud"]["seeds"] = 0
    with pytest.raises(ConfigError, match=r"figure.curves.loud.seeds must be a whole number >= 1"):
        read(tiny)


def test_the_first_seed_of_every_group_comes_before_any_second(read, tiny, jobs_of):
    tiny["panels"]["again"] = {**tiny["panels"]["digits"], "seeds": [5]}
    tiny["show"]["again"] = ["loud"]
    labels = [job.label for job in jobs_of(read(tiny))]
    assert labels == [
        "digits/loud/seed 0", "digits/quiet/seed 0", "again/loud/seed 5",
        "digits/loud/seed 1", "digits/quiet/seed 1",
    ]  # fmt: skip


def test_the_identity_is_that_of_the_run_with_the_overrides(figure, jobs_of):
    for job in jobs_of(figure):
        assert job.identity == identity(compose(job.overrides))


def test_overrides_of_group_curve_quick_scale_and_user_win_in_this_order(read, tiny, jobs_of):
    tiny["curves"]["loud"]["overrides"].append("rounds=7")
    assert jobs_of(read(tiny))[0].identity["rounds"] == 7
    assert jobs_of(read({**tiny, "scale": "quick"}))[0].identity["rounds"] == 2
    assert jobs_of(read({**tiny, "scale": "quick"}), "rounds=9")[0].identity["rounds"] == 9


def test_a_folder_is_named_after_algorithm_data_set_seed_and_fingerprint(figure, jobs_of):
    for job in jobs_of(figure):
        assert re.fullmatch(rf"dp_fl-digits-seed{job.seed}-[0-9a-f]{{12}}", folders([job])[0])
    assert len(set(folders(jobs_of(figure)))) == 4


def test_the_same_run_has_the_same_folder_in_another_figure(read, tiny, jobs_of):
    first = folders(jobs_of(read(tiny)))
    tiny["curves"]["other"] = {**tiny["curves"]["loud"], "label": "other", "colour": "red"}
    tiny["panels"]["mine"] = {**tiny["panels"]["digits"], "title": "Mine"}
    tiny |= {"title": "Another", "show": {"mine": ["other", "quiet"]}, "stated": []}
    assert folders(jobs_of(read(tiny, "own/another"))) == first


@pytest.mark.parametrize(
    ("override", "same"),
    [
        ("rounds=5", False), ("epsilon=9", False), ("algorithm.learning_rate=0.5", False),
        ("runtime.threads=1", True), ("runtime.plots=false", True), ("runtime.device=cpu", True),
    ],
)  # fmt: skip
def test_an_override_that_changes_the_result_is_another_run(override, same, figure, jobs_of):
    known, others = folders(jobs_of(figure)), folders(jobs_of(figure, override))
    assert (known == others) if same else not {*known} & {*others}


@pytest.mark.parametrize("common", ["seed=3", "seed=0"])
def test_the_seed_is_not_an_override(common, figure, jobs_of):
    with pytest.raises(ConfigError, match=r"figure\.seeds="):
        jobs_of(figure, common)


def test_two_curves_that_are_the_same_runs_are_refused(read, tiny, jobs_of):
    tiny["curves"]["twin"] = {**tiny["curves"]["loud"], "label": "twin"}
    tiny["show"]["digits"] = ["loud", "twin"]
    with pytest.raises(ConfigError, match="digits/loud/seed 0 and digits/twin/seed 0 are"):
        jobs_of(read(tiny))


def test_equal_runs_of_two_groups_are_run_once(read, tiny, jobs_of):
    tiny["panels"]["again"] = dict(tiny["panels"]["digits"])
    tiny["show"] = {"digits": ["loud"], "again": ["loud"]}
    jobs = jobs_of(read(tiny))
    assert [job.label for job in distinct(jobs)] == ["digits/loud/seed 0", "digits/loud/seed 1"]


@pytest.mark.parametrize("reason", FINISHED)
def test_a_job_that_ended_is_done(reason, figure, jobs_of):
    leave(jobs_of(figure)[0], reason)
    assert [job.state for job in jobs_of(figure)] == ["done", "not run", "not run", "not run"]


@pytest.mark.parametrize("reason", ["interrupted", None])
def test_a_job_that_did_not_end_is_partly_there(reason, figure, jobs_of):
    leave(jobs_of(figure)[0], reason)
    assert jobs_of(figure)[0].state == "partly"


def test_new_runs_go_to_the_first_store(figure, jobs_of, tmp_path):
    jobs = jobs_of(figure, stores=(tmp_path / "own", tmp_path / "kept"))
    assert {job.folder.path.parent for job in jobs} == {tmp_path / "own"}


def test_a_finished_run_is_found_in_a_further_store(figure, jobs_of, tmp_path):
    leave(jobs_of(figure, stores=(tmp_path / "kept",))[0], "rounds")
    leave(jobs_of(figure, stores=(tmp_path / "own",))[0], "interrupted")
    jobs = jobs_of(figure, stores=(tmp_path / "own", tmp_path / "kept"))
    assert jobs[0].folder.path.parent == tmp_path / "kept"
    assert [job.state for job in jobs] == ["done", "not run", "not run", "not run"]


@pytest.mark.parametrize("changed", ["rounds", "seed"])
def test_a_folder_that_holds_another_run_is_refused(changed, figure, jobs_of):
    job = jobs_of(figure)[0]
    leave(job, "rounds")
    config = OmegaConf.load(job.folder.config)
    config[changed] = 99
    job.folder.config.write_text(dump(config))
    with pytest.raises(ConfigError, match="holds another run than its name says") as caught:
        jobs_of(figure)
    assert str(job.folder.path) in str(caught.value)


def test_the_point_stands_in_overrides_too():
    assert at(["+recipe=x_eps{point}", "rounds=3"], 2.0) == ("+recipe=x_eps2", "rounds=3")
    assert at(["a={point}"], 0.5) == ("a=0.5",)
    assert at(["a={point}"], None) == ("a={point}",)
