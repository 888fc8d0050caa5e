"""Mistakes of a command line: each ends in one sentence with key, value and what is allowed, and status 2."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LIKELY = {
    ("lr=0.1",): ("unknown key lr;", "algorithm.learning_rate"),
    ("sigma=3",): ("unknown key sigma;", "noise_schedule.noise_multiplier"),
    ("clip=1",): ("unknown key clip;", "clipper.initial_clip_norm"),
    ("batch_size=32",): ("unknown key batch_size;", "algorithm.sample_rate"),
    ("algorithm=dpfl",): ("unknown algorithm option dpfl;", "dp_fl"),
    ("clipper.clipnorm=1",): ("unknown key clipper.clipnorm;", "clipper.initial_clip_norm"),
    ("--epsilon", "2"): ("fedpriv train does not know --epsilon:", "epsilon=2"),
    ("epsilon=1,2",): ("epsilon=1,2 gives several values;", "add -m"),
    ("dataset=MNIST",): ("unknown dataset option MNIST;", "mnist"),
    ("+nobody=1",): ("unknown key nobody", ""),
    ("+clipper.colour=red",): ("unknown key clipper.colour ", "initial_clip_norm"),
}
"""Arguments of ``fedpriv train`` → the beginning of the sentence, and the name that it must hold."""
RARER = {
    ("clip=1", "algorithm=dp_fl"): ("unknown key clip;", "clipper.clip_norm"),
    ("epochs=3",): ("unknown key epochs;", "rounds"),
    ("epsilom=1",): ("unknown key epsilom;", "epsilon"),
    ("runtime.devise=cpu",): ("unknown key runtime.devise;", "runtime.device"),
    ("attack.strength=3",): ("unknown key attack.strength:", "attack=OPTION"),
    ("clipper=2",): ("unknown clipper option 2 ", "constant"),
    ("model={a:1}",): ("unknown model option {a:1} ", "cnn"),
    ("recipe={a:1}",): ("unknown recipe option {a:1} ", "fedpriv list recipe"),
    ("~clipper",): ("clipper was deleted (~)", "constant"),
    ("dp_fl",): ("cannot read the override dp_fl;", "key=value"),
    ("-m", "seed=0", "1"): ("cannot read the override 1;", "key=value"),
}
COMPUTED = {
    ("algorithm=dp_fl", "epsilon=0.001"): ("epsilon must be >= 0.1", "got 0.001"),
    ("algorithm=adap_dpfl", "accountant=pld"): (
        "accountant=pld has no privacy filter",
        "accountant=rdp",
    ),
    ("algorithm=fedavg", "epsilon=3"): ("epsilon", "null"),
    ("partition.shards=-40",): ("partition.shards must be a whole number >= 1, got -40", ""),
}


@pytest.mark.parametrize("words", [*LIKELY, *RARER, *COMPUTED], ids=" ".join)
def test_a_mistake_is_one_sentence_with_the_name_that_was_meant(words, command, tmp_path):
    said = command("train", *words, verbatim=True)
    assert said.status == 2
    (sentence,) = said.err.strip().splitlines()
    begin, meant = {**LIKELY, **RARER, **COMPUTED}[words]
    assert sentence.startswith(f"fedpriv: {begin}")
    assert meant in sentence
    assert f"+{words[0]}" not in sentence or words[0].startswith("+")
    assert list(tmp_path.iterdir()) == []


SCRIPT = """
import json, sys
from fedpriv.cli import run
for words in json.loads(sys.argv[1]):
    assert run(["train", *words]) == 2, words
    assert "torch" not in sys.modules, words
"""


def test_nobody_waits_for_torch_to_be_told_of_a_typing_mistake(tmp_path):
    """Told of a key, an option, a flag, and a key added."""
    arguments = json.dumps([list(words) for words in LIKELY][::3])
    subprocess.run([sys.executable, "-c", SCRIPT, arguments], cwd=tmp_path, check=True)
