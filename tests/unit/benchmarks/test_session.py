"""Candidates are measured in turns, and all of a search is recorded."""

from __future__ import annotations

from argparse import Namespace

import pytest

from benchmarks.results import Metric
from benchmarks.session import Session

RATE = Metric("rate", "jobs/s")


def session(*, quick: bool = False, rounds: int | None = None) -> Session:
    return Session("drain", Namespace(quick=quick, rounds=rounds))


def test_interleave__measures_every_candidate_in_each_round() -> None:
    order: list[str] = []

    def candidate(name: str) -> dict[str, float]:
        order.append(name)
        return {"rate": float(len(order))}

    rows = session(rounds=2).interleave(
        "jobs", {"a": lambda: candidate("a"), "b": lambda: candidate("b")}, warm_up=True
    )
    assert order == ["a", "b"] * 3
    assert {key: row.samples["rate"] for key, row in rows.items()} == {"a": [3.0, 5.0], "b": [4.0, 6.0]}


def test_search__prints_and_records_all_cells(capsys: pytest.CaptureFixture[str]) -> None:
    here = session()
    table = here.search(
        "grid", "all settings", [RATE], {"small": lambda: {"rate": 1.0}, "large": lambda: {"rate": 2.0}}
    )
    assert table.best().label == "large"
    assert here.tables == [table]
    printed = capsys.readouterr().out
    assert "small" in printed
    assert "best: large" in printed


def test_amounts__are_smaller_in_the_quick_mode() -> None:
    assert (session().rounds, session().amount(100, 1)) == (3, 100)
    assert (session(quick=True).rounds, session(quick=True).amount(100, 1)) == (1, 1)
    assert session(quick=True, rounds=4).rounds == 4
