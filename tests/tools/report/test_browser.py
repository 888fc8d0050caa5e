"""The page in a real browser, where there is one: no error, nothing asked for, script runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
PROBE = """
const plot = document.querySelector(".plot");
plot.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
document.body.dataset.reading = plot.querySelector(".reading").textContent;
const button = document.querySelector("[data-switch]");
button.click();
document.body.dataset.off = document.querySelectorAll(".off").length;
"""


SORT = """
const table = document.querySelector("table[data-sorts]");
const column = [...table.tHead.rows[0].cells].find((cell) => cell.textContent === "test accuracy");
const rows = () => [...table.tBodies[0].rows];
const accuracies = () => rows().map((row) => parseFloat(row.cells[column.cellIndex].textContent));
column.querySelector("button").click();
document.body.dataset.up = accuracies().join(" ");
column.querySelector("button").click();
document.body.dataset.down = accuracies().join(" ");
const field = document.querySelector(".filter");
field.value = "noise_multiplier=20";
field.dispatchEvent(new Event("input"));
document.body.dataset.left = rows().filter((row) => !row.hidden).length;
"""


def opened(page: Path, tmp_path: Path) -> tuple[str, str]:
    """(the page as it is after its scripts, what the browser wrote on its console)."""
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri(),
        ],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return done.stdout, "\n".join(re.findall(r".*CONSOLE.*", done.stderr))


def test_a_page_opens_without_errors(folder, command, tmp_path):
    command("report", str(folder))
    shown, console = opened(folder / "report.html", tmp_path)
    assert console == ""
    assert "How to repeat it" in shown


@pytest.mark.thorough
def test_curves_can_be_read_and_switched(folder, command, tmp_path):
    command("report", str(folder))
    text = (folder / "report.html").read_text()
    probed = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    (tmp_path / "probed.html").write_text(
        probed.replace("</body>", f"<script>{PROBE}</script></body>")
    )
    shown, console = opened(tmp_path / "probed.html", tmp_path)
    assert console == ""
    assert re.search(r'data-reading="round 1\D', shown)
    assert 'data-off="1"' in shown


@pytest.mark.thorough
def test_runs_are_sorted_and_filtered(sweep, command, tmp_path):
    for name in ("3", "4", "5"):
        shutil.copytree(sweep / "0", sweep / name)
    command("report", str(sweep))
    text = (sweep / "report.html").read_text()
    probed = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    (tmp_path / "probed.html").write_text(
        probed.replace("</body>", f"<script>{SORT}</script></body>")
    )
    shown, console = opened(tmp_path / "probed.html", tmp_path)
    assert console == ""
    up, down = (
        [float(value) for value in re.search(rf'data-{way}="([^"]*)"', shown)[1].split()]
        for way in ("up", "down")
    )
    assert up == sorted(up)
    assert down == up[::-1]
    assert 'data-left="1"' in shown


def test_a_script_from_elsewhere_does_not_run(folder, command, tmp_path):
    command("report", str(folder))
    text = (folder / "report.html").read_text()
    evil = "<script>document.body.dataset.evil = 'yes'</script></body>"
    (tmp_path / "evil.html").write_text(text.replace("</body>", evil))
    shown, _ = opened(tmp_path / "evil.html", tmp_path)
    assert "data-evil" not in shown
