"""The page: the same entries give the same page, and the one in docs/ is that of the entries beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedpriv.tools.leaderboard.attack_sets import ATTACK_SETS
from fedpriv.tools.leaderboard.entry import AttackedReproduction, read_entries, write_entry
from fedpriv.tools.leaderboard.flags import ENTRIES, PAGE
from fedpriv.tools.leaderboard.page import END, MARK, page
from fedpriv.tools.leaderboard.picture import panels

ROOT = Path(__file__).parents[3]


def rows(text: str) -> list[list[str]]:
    lines = (
        line
        for line in text.splitlines()
        if line.startswith("| ") and not line.startswith("| accuracy")
    )
    cells = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in lines)
    return [row for row in cells if "---" not in row]


def test_a_row_says_everything_about_an_entry(entry):
    assert rows(page("", [entry])) == [
        ["87.00 ± 1.00 %", "not measured", "1.800 (δ = 1e-5)", "local", "record, add/remove", "3", "0.5",
         "`fedpriv train algorithm=dp_fl`", f"`{entry.commit[:12]}`", "2026-11-23"]
    ]  # fmt: skip


def test_one_seed_has_no_sd_and_an_unchecked_entry_says_so(entry, reaching):
    (row,) = rows(page("", [reaching(runs=entry.runs[:1], checks=())]))
    assert (row[0], row[5], row[9]) == ("86.00 %", "1", "not yet")


@pytest.mark.parametrize(
    ("changes", "cell"),
    [
        ({}, "40.00 ± 10.00 % ipm, 3 seeds"),
        ({"left_out": ("label_reversal", "alie")},
         "40.00 ± 10.00 % ipm, 3 seeds, without label_reversal and alie"),
        ({"runs": (), "left_out": tuple(ATTACK_SETS[1])}, "–"),
    ],
)  # fmt: skip
def test_the_worst_case_names_its_attack_and_what_was_left_out(changes, cell, reaching, worst_case):
    left_out = changes.get("left_out", ())
    kept = tuple(run for run in worst_case.runs if run.attack not in left_out)
    measured = replace(worst_case, **{"runs": kept, **changes})
    (row,) = rows(page("", [reaching(worst_case=measured)]))
    assert row[1] == cell


def test_five_seeds_as_of_the_accuracy_need_no_remark(reaching, entry, worst_case):
    more = [replace(run, seed=seed, noise_seed=seed) for run in entry.runs[:1] for seed in (3, 4)]
    attacked = [
        replace(run, seed=seed, noise_seed=seed)
        for run in worst_case.runs if run.seed == 1 for seed in (3, 4)
    ]  # fmt: skip
    measured = replace(worst_case, runs=(*worst_case.runs, *attacked))
    (row,) = rows(page("", [reaching(runs=(*entry.runs, *more), worst_case=measured)]))
    assert row[1] == "40.00 ± 7.07 % ipm"


def test_distributed_trust_takes_no_attackers(reaching):
    (row,) = rows(page("", [reaching(trust="distributed")]))
    assert row[1] == "–"


def test_a_row_is_checked_when_its_worst_case_is(reaching, worst_case):
    (row,) = rows(page("", [reaching(worst_case=worst_case)]))
    assert row[9] == "not yet"
    checked = replace(worst_case, checks=(AttackedReproduction("2026-11-21", "ipm", 0, 9, 0.4),))
    (row,) = rows(page("", [reaching(worst_case=checked)]))
    assert row[9] == "2026-11-21"


def test_rows_go_by_data_set_then_epsilon_then_accuracy(reaching):
    known = [
        reaching(mean=0.95, epsilon=7.5), reaching(mean=0.90, epsilon=2.0), reaching(mean=0.91, epsilon=1.5),
        reaching(mean=0.92, epsilon=2.1), reaching(mean=0.5, epsilon=0.9), reaching(dataset="adult"),
    ]  # fmt: skip
    text = page("", known)
    assert text.index("## adult") < text.index("## digits")
    found = [(row[2].split()[0], row[0].split()[0]) for row in rows(text)][1:]
    assert found == [
        ("0.900", "50.00"), ("1.500", "91.00"), ("2.000", "90.00"), ("2.100", "92.00"), ("7.500", "95.00"),
    ]  # fmt: skip


def test_the_order_of_the_entries_does_not_matter(reaching):
    known = [reaching(mean=0.9), reaching(mean=0.8), reaching(overrides=("epsilon=1",))]
    assert page("", known) == page("", known[::-1])


def test_what_stands_above_the_mark_is_kept_and_what_stands_below_is_not(entry):
    once = page("# Board\n\nWords.\n", [entry])
    assert once.startswith(f"# Board\n\nWords.\n\n{MARK}\n\n## digits\n")
    assert page(once + "more", [entry]) == once
    assert page(once, []) == f"# Board\n\nWords.\n\n{MARK}\n\nThere is no entry yet.\n"


def test_what_stands_below_the_end_is_kept(entry):
    written = page(f"# Board\n\n{MARK}\n\nold\n\n{END}\n\n## Columns\n\nWords.\n", [entry])
    assert written.startswith(f"# Board\n\n{MARK}\n\n## digits\n")
    assert written.endswith(f"|\n\n{END}\n\n## Columns\n\nWords.\n")
    assert page(written, [entry]) == written


def test_a_data_set_has_a_panel_and_a_trust_a_line(reaching):
    known = [reaching(dataset="adult"), reaching(), reaching(trust="distributed")]
    drawn = panels(known)
    assert [panel.title for panel in drawn] == ["adult", "digits"]
    assert [line.label for line in drawn[1].lines] == [
        "distributed trust, one record", "local trust, one record",
    ]  # fmt: skip
    assert len({(line.colour, line.marker) for line in drawn[1].lines}) == 2


def test_a_line_joins_the_entries_that_no_smaller_epsilon_surpasses(reaching):
    known = [
        reaching(mean=0.8, epsilon=1.0), reaching(mean=0.7, epsilon=2.0), reaching(mean=0.9, epsilon=3.0),
    ]  # fmt: skip
    (line,) = panels(known)[0].lines
    assert list(line.x) == [1.0, 3.0]
    assert list(line.y) == pytest.approx([80, 90])


def test_the_picture_is_drawn_beside_the_page(entry, command, tmp_path):
    (tmp_path / "entries").mkdir()
    write_entry(tmp_path / "entries" / "x.json", entry)
    wanted = (
        "leaderboard",
        "write",
        "--entries",
        "entries",
        "--page",
        "page.md",
        "--plot",
        "a.svg",
    )
    assert command(*wanted).status == 0
    assert "digits" in (tmp_path / "a.svg").read_text()
    assert command(*wanted).status == 0  # its own picture is written over
    (tmp_path / "a.svg").write_text("mine")
    assert "a.svg" in command(*wanted).sentence


def test_the_page_of_the_documentation_begins_with_picture_and_tables():
    head, _, below = (ROOT / PAGE).read_text("utf-8").partition(MARK)
    assert "](leaderboard.png)" in head
    assert len(head.splitlines()) < 12
    assert "## Enter a configuration" in below.partition(END)[2]


def test_the_command_writes_the_page(entry, command, tmp_path):
    (tmp_path / "entries").mkdir()
    write_entry(tmp_path / "entries" / "x.json", entry)
    said = command("leaderboard", "write", "--entries", "entries", "--page", "page.md")
    assert (said.status, said.err, said.out) == (0, "", "1 entry: page.md\n")
    assert (tmp_path / "page.md").read_text() == page("", [entry])


def test_an_entry_that_is_none_stops_the_page(entry, command, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    said = command("leaderboard", "write", "--entries", ".", "--page", "page.md")
    assert said.status == 2
    assert said.sentence.startswith("fedpriv: x.json is no entry")
    assert not (tmp_path / "page.md").exists()
    assert (
        "--entries must be an existing folder"
        in command("leaderboard", "write", "--entries", "y", "--page", "p.md").sentence
    )


def test_the_page_of_the_documentation_is_that_of_the_entries():
    if not (ROOT / ENTRIES).is_dir():
        pytest.skip("needs the entries of the repository: this is a source package")
    written = (ROOT / PAGE).read_text("utf-8")
    assert page(written, read_entries(ROOT / ENTRIES)) == written
