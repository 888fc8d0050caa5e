"""Messages for what a newcomer with an own table, model and figure mistypes: each says what was meant."""

from __future__ import annotations

import pytest

import fedpriv
from fedpriv.common.errors import ConfigError

TABLE = "defaults: [csv, _self_]\npath: own.csv\nlabel: y\nranges: {age: [0, 9]}\n"
RUN = ("train", "dataset=mine", "algorithm=dp_fl", "dry_run=true")
OWN = ("--config-dir", "conf")


@pytest.fixture
def study(tmp_path):
    """A folder with an own table, its YAML, a model and a figure."""
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    (tmp_path / "conf" / "dataset" / "mine.yaml").write_text(TABLE)
    (tmp_path / "conf" / "dataset" / "bare.yaml").write_text(TABLE.replace("defaults", "default"))
    records = "".join(f"{n % 9}.5,{n % 2}\n" for n in range(40))
    (tmp_path / "own.csv").write_text("age,y\n" + records)
    (tmp_path / "headless.csv").write_text(records)
    (tmp_path / "netsofmine.py").write_text(
        "from torch import nn\n\n\nclass Small(nn.Module):\n    pass\n"
    )
    (tmp_path / "broken.yaml").write_text("x: {a\n b: [\n")
    (tmp_path / "outputs" / "figures" / "readm").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (*RUN, *OWN, "dataset.ranges={agee: [0, 1]}"),
            "unknown key dataset.ranges.agee; did you mean dataset.ranges.age?",
        ),
        (
            ("train", "dataset=bare", "algorithm=dp_fl", "dry_run=true", *OWN),
            "defaults: [csv, _self_]",
        ),
        ((*RUN, *OWN, "dataset.path=headless.csv"), "looks like a record"),
        ((*RUN, *OWN, "model._target_=netsofmine.Smal"), "No module named 'netsofmine.Smal'"),
        ((*RUN, *OWN, "model._target_=netsofmin.Small"), "No module named 'netsofmin'"),
        (RUN, "need --config-dir FOLDER"),
        (("train", "dataset=qqqq"), "need --config-dir FOLDER"),
        (
            ("train", "model=logistic", "model.hidden=64"),
            "it is a key of model=lstm_classifier, model=lstm_lm, model=mlp",
        ),
        (("figure", "broke.yaml"), "did you mean broken.yaml?"),
        (("figure", "broken.yaml"), "is not YAML: while parsing a flow mapping in line 1"),
        (("figure", "pack", "broken"), "broken.yaml"),
        (("runs", "readmi"), "did you mean readm?"),
    ],
)
def test_the_message_says_what_was_meant(arguments, words, study, command):
    said = command(*arguments)
    assert said.status == 2
    assert words in said.sentence


def test_overrides_in_the_place_of_a_configuration_are_refused():
    with pytest.raises(ConfigError, match=r"fedpriv\.compose"):
        fedpriv.run(["algorithm=dp_fl"])  # type: ignore[arg-type]
