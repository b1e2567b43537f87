"""Trivial jobs a second with kept results, with a history and with both, beside the same jobs without."""

from __future__ import annotations

from benchmarks.draining import METRICS
from benchmarks.peers.ours.commands import SILENT
from benchmarks.results import Metric, Table
from benchmarks.session import Candidate, Figures, Session
from benchmarks.workers import Stage, stage

WORDS = {1: "one process", 2: "two processes"}
# Seconds, by the settings that a candidate has.
RECORDS = {
    "nothing recorded": {},
    "results kept": {"KEEP_RESULTS": "86400"},
    "history": {"HISTORY": "2592000"},
    "results and history": {"KEEP_RESULTS": "86400", "HISTORY": "2592000"},
}
# The partitions of the history.
DAYS = "select inhrelid::regclass::text from pg_inherits where inhrelid::regclass::text ~ '_private_history_[0-9]{8}$'"
CPU = Metric("cpu", "µs of CPU, worker and server", 1)


def measure(session: Session) -> None:
    count = session.options.jobs or session.amount(100_000, 20_000)
    with stage(with_node=False) as place:
        for processes, words in WORDS.items():
            rows = session.interleave(words, _candidates(place, count, processes))
            title = f"{count:,} trivial jobs that return a small value, {words}"
            table = Table(f"recording_{processes}", title, [*METRICS, CPU], list(rows.values()), baseline=_BASELINE)
            session.add(table)


_BASELINE = "nothing recorded"


def _candidates(place: Stage, count: int, processes: int) -> dict[str, Candidate]:
    def candidate(variables: dict[str, str]) -> Candidate:
        return lambda: _drain(place, count, processes, variables)

    return {label: candidate(variables) for label, variables in RECORDS.items()}


def _drain(place: Stage, count: int, processes: int, variables: dict[str, str]) -> Figures:
    place.ours.execute("truncate graphile_worker._private_results, graphile_worker._private_history")
    for (name,) in place.ours.execute(DAYS).fetchall():
        place.ours.execute(f"drop table {name}")
    # A worker makes the days ahead, so that they are there before their first job.
    place.ours.execute("select graphile_worker._private_make_history_partitions(2)")
    figures = place.drain_ours(count, SILENT, processes=processes, task="answer", **variables).figures()
    return {**figures, "cpu": figures["worker_cpu"] + figures["server_cpu"]}
