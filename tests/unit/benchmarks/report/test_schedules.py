"""The tables and the sentence on schedules."""

from __future__ import annotations

from benchmarks.report import schedules, sentences
from benchmarks.report.figures import Figures
from benchmarks.results import Measured, Row, Table


def _measured() -> Figures:
    idle = [
        Row("none", "no schedules", {"transactions": [100.0], "cpu": [0.2], "server_cpu": [0.1], "memory": [50.0]}),
        Row(
            "many",
            "10,000 schedules, none of them due",
            {"transactions": [102.0], "cpu": [0.25], "server_cpu": [0.1], "memory": [55.0]},
        ),
    ]
    firing = [Row("1 worker", "1 worker", {"added": [1.234], "ran": [2.0], "worker_cpu": [1.0], "server_cpu": [1.5]})]
    tables = [Table("idle", "", [], idle), Table("firing", "", [], firing)]
    return Figures({"schedules": Measured("schedules", "", 1.0, {}, {}, {}, [], tables)})


def test_tables__have_a_row_for_each_candidate() -> None:
    assert schedules.idle(_measured()).splitlines()[2:] == [
        "| no schedules | 100 | 0.2 | 0.1 | 50 |",
        "| 10,000 schedules, none of them due | 102 | 0.25 | 0.1 | 55 |",
    ]
    assert schedules.firing(_measured()).splitlines()[2:] == ["| 1 worker | 1.23 | 2 | 1 | 1.5 |"]


def test_sentence__says_what_schedules_cost() -> None:
    assert sentences.schedules(_measured()) == (
        "10,000 schedules that are not due cost an idle worker 2 more transactions and 0.05 more seconds of CPU time a "
        "minute; if all of them are due at the same minute, one worker has added their jobs after 1.2 s"
    )
    assert sentences.schedules(Figures({})) == sentences.UNKNOWN
