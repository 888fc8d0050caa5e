from __future__ import annotations

import pytest

from fedpriv.common.errors import DataError
from fedpriv.data.text_vocabulary import CHARACTERS, SPECIAL, UNKNOWN, of_file, of_list, of_texts

TEXTS = [["b", "a", "b"], ["c", "a", "<pad>", "d"]]


def test_the_most_frequent_tokens_come_first_and_ties_in_alphabetical_order():
    assert of_texts(TEXTS, "word", 100).tokens == (*SPECIAL, "a", "b", "c", "d")


def test_the_size_counts_padding_and_unknown():
    vocabulary = of_texts(TEXTS, "word", 4)
    assert len(vocabulary) == 4
    assert vocabulary.encode("a b c") == [2, 3, UNKNOWN]


def test_some_tokens_are_in_it_in_any_case():
    assert of_texts(TEXTS, "word", 5, ["london", "a"]).tokens == (*SPECIAL, "london", "a", "b")


def test_a_text_cannot_spell_padding_or_unknown():
    vocabulary = of_texts(TEXTS, "word", 100)
    assert vocabulary.encode("<pad> a <unknown>") == [UNKNOWN, 2, UNKNOWN]


def test_ids_become_tokens_again_without_padding():
    vocabulary = of_texts(TEXTS, "word", 100)
    assert vocabulary.decode([2, 3, 1, 0, 0]) == "a b <unknown>"
    assert vocabulary.encode("A  B zzz") == [2, 3, 1]


def test_the_fixed_list_of_characters_is_printable_ascii():
    vocabulary = of_list(CHARACTERS, "character", 98)
    assert len(vocabulary) == 98
    text = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
    assert UNKNOWN not in vocabulary.encode(text)  # the 80 letters of LEAF
    assert vocabulary.decode(vocabulary.encode(text)) == text
    assert vocabulary.encode("é") == [UNKNOWN]


def test_a_file_has_one_token_a_line(tmp_path):
    file = tmp_path / "words.txt"
    file.write_bytes(b"<pad>\nthe\n\r\nit's\r\n.\nthe\nlast")
    assert of_file(file, "word", 5).tokens == (*SPECIAL, "the", "it's", ".")
    file.write_text(" \na\n")
    assert of_file(file, "character", 9).tokens == (*SPECIAL, " ", "a")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"the\ntwo words\n", "line 2: one word as the tokeniser writes it is expected"),
        (b"The\n", "line 1: one word as the tokeniser writes it is expected"),
        (b"\n\n", "has no tokens; one a line is expected"),
        (b"\xff", "cannot read"),
    ],
)
def test_a_file_that_is_no_list_of_tokens_is_refused(tmp_path, content, message):
    file = tmp_path / "words.txt"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        of_file(file, "word", 9)
    with pytest.raises(DataError, match=r"^cannot read .*none\.txt: No such file"):
        of_file(tmp_path / "none.txt", "word", 9)
