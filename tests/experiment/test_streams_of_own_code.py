"""Where code of the user's own takes part, streams depend on what the run announced and released so far.

Two runs of one configuration and seed whose code reads other files are two mechanisms: with common noise the
difference of what they release would have none. Noise is so large here that an update is noise and nothing
else: two with the same noise are alike, two with noise of their own are not.
"""

from __future__ import annotations

import importlib
import textwrap

import pytest
import torch

from fedpriv.common.secret_streams import History, SecretStreams
from fedpriv.experiment import own_code

RUN = (
    "algorithm=dp_fl", "epsilon=null", "rounds=2", "algorithm.optimizer=sgd", "clipper=constant",
    "algorithm.sample_rate=1", "noise_schedule.noise_multiplier=1000", "runtime.snapshot_interval=1",
)  # fmt: skip
SPREAD = 5.0
"""Standard deviations of a correlation within which independent noise lies."""

READS_CLIP_NORM = """
    from fedpriv.privacy.clippers import ConstantClipper

    class Part(ConstantClipper):
        def clip_norm(self, round_index, holders):
            return super().clip_norm(round_index, holders) * float(FILE.read_text())
"""
READS_NOISE_MULTIPLIER = """
    from fedpriv.privacy.noise_schedules import ConstantNoise

    class Part(ConstantNoise):
        def noise_multiplier(self, round_index):
            return super().noise_multiplier(round_index) * float(FILE.read_text())
"""
READS_IN_ITS_CONSTRUCTOR = """
    from fedpriv.models import Logistic

    class Part(Logistic):
        def build(self, shape, classes):
            module = super().build(shape, classes)
            module.temperature = float(FILE.read_text())
            return module
"""
READS_WHEN_IT_IS_IMPORTED = """
    from fedpriv.models import Logistic

    FACTOR = float(FILE.read_text())

    class Part(Logistic):
        pass
"""
READS_AFTER_A_ROUND = """
    from fedpriv.algorithms.dp_fl import DpFl
    from fedpriv.algorithms.server_steps import ServerStep
    from fedpriv.privacy.mechanisms.visible import seen

    class Step(ServerStep):
        def apply(self, cohort, uploads):
            mean = seen(uploads, "the server step").mean(0)
            self.model.flat.add_(mean * float(FILE.read_text()))

    class Part(DpFl):
        def server_step(self, problem):
            return Step(problem.model)
"""


@pytest.fixture
def own_part(tmp_path, monkeypatch, train):
    """(group, code, what stands in its file, name) → the updates of the rounds of a run with it [2, d]."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def updates(group: str, code: str, text: str, name: str) -> torch.Tensor:
        module = "own_streams_" + "".join(c for c in tmp_path.name if c.isalnum())
        file = tmp_path / "number.txt"
        file.write_text(text)
        (tmp_path / f"{module}.py").write_text(
            f"from pathlib import Path\n\nFILE = Path({str(file)!r})\n" + textwrap.dedent(code)
        )
        importlib.invalidate_caches()
        monkeypatch.delitem(importlib.sys.modules, module, raising=False)
        result = train(*RUN, f"{group}._target_={module}.Part", name=name)
        places = [result.folder / "snapshots" / f"round{t:06d}.pt" for t in range(3)]
        weights = [torch.load(p, weights_only=True)["weights"].double() for p in places]
        return torch.stack([weights[1] - weights[0], weights[2] - weights[1]])

    return updates


def correlations(one: torch.Tensor, other: torch.Tensor) -> list[float]:
    """That of the updates of each round, in standard deviations of independent ones."""
    pairs = [torch.stack(rows) for rows in zip(one, other, strict=True)]
    return [float(torch.corrcoef(pair)[0, 1]) * pair.shape[1] ** 0.5 for pair in pairs]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("group", "code", "first"),
    [
        ("clipper", READS_CLIP_NORM, 0),
        ("noise_schedule", READS_NOISE_MULTIPLIER, 0),
        ("model", READS_IN_ITS_CONSTRUCTOR, 0),
        ("model", READS_WHEN_IT_IS_IMPORTED, 0),
        ("algorithm", READS_AFTER_A_ROUND, 1),
    ],
    ids=["clip norm", "noise multiplier", "constructor", "import", "server step"],
)
def test_code_that_reads_another_file_has_other_noise(own_part, group, code, first):
    """``first``: before this round something that follows from the file was announced or released."""
    one, again, other = (own_part(group, code, text, f"{text} {i}") for i, text in enumerate("112"))
    assert torch.equal(one, again)
    alike = correlations(one, other)
    assert all(abs(z) < SPREAD for z in alike[first:]), alike


def test_packages_of_an_environment_below_are_no_code_of_the_users_own(tmp_path, monkeypatch):
    """An environment may show the packages of another one, as on clusters: a .pth file, PYTHONPATH."""
    below = tmp_path / "below" / "site-packages"
    below.mkdir(parents=True)
    (below / "a_package_below.py").write_text("VERSION = 1\n")
    (tmp_path / "a_module_of_mine.py").write_text("import a_package_below\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(below))
    assert own_code._files_of(["a_module_of_mine"]).keys() == {"a_module_of_mine"}


def test_the_folder_that_code_lies_in_changes_no_noise(tmp_path, monkeypatch, train):
    """The code notes its folder in a global and in an attribute, as plug-ins often do."""
    code = textwrap.dedent("""
        import os
        from fedpriv.privacy.clippers import ConstantClipper

        HERE = os.path.dirname(os.path.abspath(__file__))

        class Part(ConstantClipper):
            def start(self, *given):
                super().start(*given)
                self.folder = HERE
    """)
    weights = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own_here.py").write_text(code)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(tmp_path / name))
            importlib.invalidate_caches()
            patch.delitem(importlib.sys.modules, "own_here", raising=False)
            run = train(*RUN, "clipper._target_=own_here.Part", name=f"run {name}").folder
        weights.append(torch.load(run / "model.pt", weights_only=True))
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_resuming_draws_what_an_uninterrupted_run_would(
    train, assert_same_run, tmp_path, monkeypatch
):
    code = "from fedpriv.privacy.clippers import ConstantClipper\n\nclass Part(ConstantClipper):\n    pass\n"
    (tmp_path / "own_clipper_of_streams.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    sampled = ("algorithm=dp_fl", "epsilon=null", "clipper=constant", "rounds=4")
    own = (
        *sampled,
        "clipper._target_=own_clipper_of_streams.Part",
        "runtime.checkpoint_interval=1",
    )
    whole = train(*own, name="whole").folder
    stop = tmp_path / "stop"
    stop.touch()
    part = train(*own, f"runtime.stop_file={stop}", name="part").folder
    stop.unlink()
    assert torch.load(part / "checkpoint.pt", weights_only=True)["round"] < 4
    assert_same_run(whole, train(*own, f"resume={part}", name="part").folder)


def test_a_history_holds_announcement_clip_norms_releases_and_weights(own_part, monkeypatch):
    noted = []
    bind = History.bind

    def seen(self, what, *values):
        noted.append(what)
        bind(self, what, *values)

    monkeypatch.setattr(History, "bind", seen)
    own_part("clipper", READS_CLIP_NORM, "1", "run")
    assert noted == 2 * ["announced", "step", "released", "weights"]


def test_parts_of_fedpriv_have_no_history(train):
    result = train("algorithm=dp_fl", "epsilon=null", "rounds=1")
    assert "history" not in torch.load(result.folder / "checkpoint.pt", weights_only=True)


@pytest.mark.parametrize("use", ["sampling", "noise"])
def test_a_history_changes_every_stream_but_those_of_the_whole_run(use):
    streams = SecretStreams.simulated(0, 0, "run")
    followed = SecretStreams(streams.sampling_key, streams.noise_key, History())
    seen = []
    for change in (1.0, 1.0 + 2**-52, 1.0):
        followed.bind("announced", change)
        seen.append((first(followed, use, "lot"), first(followed, use, "cohort_order")))
    assert len({lot for lot, _ in seen}) == 3
    assert len({order for _, order in seen}) == 1


def first(streams: SecretStreams, use: str, purpose: str) -> int:
    return int(getattr(streams, use)(purpose, 0).bits(1)[0])
