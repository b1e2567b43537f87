"""The tables on adding jobs."""

from __future__ import annotations

from benchmarks.report import adding
from benchmarks.report.figures import Figures
from benchmarks.results import Measured, Row, Table


def _measured() -> Figures:
    tables = [
        Table("one", "", [], [Row("create()", "create()", {"call": [500.0]}), Row("add", "add", {"call": [520.0]})]),
        Table(
            "one_in_transaction", "", [], [Row("add", "add", {"call": [380.0]}), Row("create()", "", {"call": [400]})]
        ),
        Table("many", "", [], [Row("add_jobs()", "add_jobs()", {"seconds": [1.5, 1.6, 2.0]})]),
    ]
    return Figures({"api": Measured("api", "", 1.0, {}, {}, {}, [], tables)})


def test_one__has_both_times_of_each_candidate() -> None:
    assert adding.one(_measured()).splitlines()[2:] == ["| `create()` | 500 | 400 |", "| `add` | 520 | 380 |"]


def test_many__has_the_rate() -> None:
    assert adding.many(_measured()).splitlines()[2:] == ["| `add_jobs()` | 1.6 | 62,500 |"]
