"""What is said on standard error."""

from __future__ import annotations

from fedpriv.common.notices import complain, notice, take


def test_a_complaint_is_a_line_that_no_terminal_obeys(capsys):
    complain("a\x1b[31mb\u202ec")
    complain("other", command="verify")
    assert capsys.readouterr().err == (
        "fedpriv: a\N{REPLACEMENT CHARACTER}[31mb\N{REPLACEMENT CHARACTER}c\nverify: other\n"
    )


def test_of_one_kind_the_first_notice_is_said():
    take()
    notice("first", kind="same")
    notice("second", kind="same")
    notice("third")
    assert take() == ["first", "third"]
    assert take() == []
