"""The figures of the pages are those of the recorded benchmarks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from benchmarks import report, results
from benchmarks.__main__ import NAMES
from benchmarks.results import Measured, Row, Table
from tests.docs.pages import CHECKOUT, page

STALE = "Run `make figures`, which writes the tables from benchmarks/results/published.json."
PAGES = [path for path in report.PAGES if "<!-- figures:" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_page__has_the_figures_of_the_recorded_benchmarks(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == report.filled(text, report.Figures(results.read(results.PUBLISHED))), STALE


def test_pages__use_every_block_and_every_record() -> None:
    texts = [path.read_text(encoding="utf-8") for path in PAGES]
    assert {name for text in texts for _, name, _, _ in report.BLOCK.findall(text)} == set(report.BLOCKS)
    assert set(results.read(results.PUBLISHED)) == set(NAMES)


def test_filled__replaces_paragraphs_and_parts_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(report.BLOCKS, "summary", lambda figures: "| new |")
    text = (
        "A\n\n<!-- figures:summary -->\n\nold\n\n<!-- /figures -->\n\nB: <!-- figures:summary -->old<!-- /figures -->."
    )
    expected = text.replace("\n\nold\n\n", "\n\n| new |\n\n").replace("old", "| new |")
    assert report.filled(text, report.Figures({})) == expected
    assert report.filled(expected, report.Figures({})) == expected


def measured(name: str, rate: float, *preliminary: str) -> Measured:
    tables = [Table("one", "One", [Row("ours", {"rate": rate}, {"at once": 10}), Row("other", {"rate": 0.5})])]
    machine = {"cores": 2, "settings": {"fsync": "on"}}
    return Measured(name, "2026-01-02T03:04:05+00:00", 3, machine, {"before": 0.1}, list(preliminary), tables)


def test_merge__replaces_the_record_of_the_same_name_only(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "results.json"
    for each in (measured("drain", 1.0), measured("queues", 2.0), measured("drain", 3.0)):
        results.merge(path, each)
    assert results.read(path) == {"drain": measured("drain", 3.0), "queues": measured("queues", 2.0)}


def test_read__rejects_the_format_of_another_version(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"format": 1, "measures": {}}), encoding="utf-8")
    with pytest.raises(ValueError, match="has format 1, not 2"):
        results.read(path)


def test_preliminary__names_each_reason_once() -> None:
    one = measured("drain", 1.0, "the load average was 1.20 at the start", "measured in the quick mode")
    two = measured("idle", 1.0, "the load average was 0.90 at the start")
    reasons = report.Figures({"drain": one, "idle": two}).preliminary("drain", "idle", "missing")
    assert reasons == ["the load average was above 0.5", "measured in the quick mode"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(43_912.4, "43,900"), (1.2749, "1.27"), (0.5, "0.5"), (1000.0, "1,000"), (99.96, "100"), (0, "0"), (25.0, "25")],
)
def test_rounded__has_three_digits(value: float, text: str) -> None:
    assert report.rounded(value) == text


def test_help__says_what_each_benchmark_measures() -> None:
    command = [sys.executable, "-m", "benchmarks", "--help"]
    text = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    assert [name for name in NAMES if not re.search(rf"^  {name} +\w", text, re.MULTILINE)] == []
    assert {path.stem for path in (CHECKOUT / "benchmarks" / "measures").glob("[a-z]*.py")} == set(NAMES)


def test_page_on_benchmarks__names_paths_that_exist() -> None:
    paths = re.findall(r"`(benchmarks/[a-z_/.]+)`", page("explanation/benchmarks.md"))
    assert len(paths) > 6
    assert [path for path in paths if not (CHECKOUT / path).exists()] == []


def test_environment_of_the_other_queues__has_what_this_package_needs() -> None:
    needed = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    pinned = (CHECKOUT / "benchmarks/real_jobs/requirements.txt").read_text(encoding="utf-8")
    assert [name for name in needed if f"\n{re.split('[<>=~]', name)[0]}==" not in pinned] == []
