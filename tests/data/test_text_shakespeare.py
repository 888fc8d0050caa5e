from __future__ import annotations

from pathlib import Path

import pytest

from fedpriv.common.errors import ArgumentError, DataError
from fedpriv.data.catalogue import download
from fedpriv.data.federated import federate
from fedpriv.data.partitions import Natural
from fedpriv.data.text_corpus import fraction_of
from fedpriv.data.text_shakespeare import FILE, Shakespeare, parse_speeches

PLAY = b"""ROMEO:
But soft, what light

JULIET:
Ay me!

A block without a role,
passed over.

ROMEO:
through yonder window breaks
"""


@pytest.fixture
def play(tmp_path) -> str:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_bytes(PLAY)
    return str(tmp_path)


def test_speeches_are_collected_by_role_in_order():
    speeches = parse_speeches(PLAY.replace(b"\n", b"\r\n"), Path("f"))
    assert speeches == {
        "ROMEO": ["But soft, what light", "through yonder window breaks"],
        "JULIET": ["Ay me!"],
    }


def test_a_file_without_roles_is_refused():
    with pytest.raises(
        DataError, match=r"^f, line 1: no speeches; blocks separated by empty lines"
    ):
        parse_speeches(b"Once upon a time", Path("f"))


def test_the_last_part_of_what_a_role_says_is_for_testing(play):
    dataset = Shakespeare(path=play, length=50, min_records_per_client=1, test_share=0.5)
    loaded = dataset.load()
    words = loaded.vocabulary.decode
    assert [words(record) for record in loaded.train.targets] == [
        "ut soft, what light\nthrough",
        "y me!",
    ]
    assert [words(record) for record in loaded.test.inputs] == ["yonder window break"]
    assert loaded.client_ids.tolist() == [1, 0]  # by name


def test_roles_are_cut_into_windows_and_small_ones_left_out(play):
    dataset = Shakespeare(path=play, length=5, min_records_per_client=2)
    data = federate(dataset, Natural(), validation=False, seed=0)
    assert data.client_count == 1
    assert data.classes == dataset.classes == 98
    assert (data.train.inputs != 0).all(dim=1)[:-1].all()
    assert "not for a speech" in dataset.caveats[0]


def test_words_with_a_public_vocabulary_need_public_roles(tmp_path):
    with pytest.raises(ArgumentError, match="where no text is public"):
        Shakespeare(level="word", vocabulary="public")
    roles = [f"ROLE{i}" for i in range(20)]
    (tmp_path / "play.txt").write_text(
        "\n\n".join(f"{r}:\n{r} says so, and more of it" for r in roles)
    )
    keys = {"level": "word", "vocabulary": "public", "public_share": 0.5, "file": "play.txt"}
    dataset = Shakespeare(path=str(tmp_path), min_records_per_client=1, **keys)
    public = [role for role in roles if fraction_of(role) < 0.5]
    assert set(dataset.vocabulary.tokens[2:]) == {
        *map(str.lower, public),
        "says",
        "so",
        ",",
        "and",
        "more",
        "of",
        "it",
    }
    assert dataset.train_records == len(roles) - len(public)


def test_a_download_without_a_network_fails_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(Shakespeare, "sites", ("http://127.0.0.1:9/",))
    with pytest.raises(DataError, match=r"^shakespeare could not be downloaded into "):
        download("shakespeare", tmp_path)
    with pytest.raises(DataError) as caught:
        Shakespeare(path=str(tmp_path)).load()
    assert str(caught.value).endswith(
        "or run `fedpriv data download shakespeare` and leave dataset.path out"
    )


def test_the_other_texts_cannot_be_downloaded(tmp_path):
    with pytest.raises(DataError, match=r"^sentiment140 cannot be downloaded by fedpriv; put "):
        download("sentiment140", tmp_path)


def test_the_real_play_has_the_known_counts(real_file):
    path = real_file(FILE)
    speeches = parse_speeches((Path(path) / FILE).read_bytes(), Path(FILE))
    counts = sorted(map(len, speeches.values()))
    assert (len(counts), sum(counts)) == (299, 7097)  # 309 and 7,220 with empty ones
    assert sum(count >= 10 for count in counts) == 145
    dataset = Shakespeare(path=path)
    assert dataset.present().checksums == "ok"
    assert (dataset.train_records, dataset.test_records) == (10_379, 2_710)
    loaded = dataset.load()
    assert len(set(loaded.client_ids.tolist())) == 248
    assert (loaded.train.inputs != 1).all()
