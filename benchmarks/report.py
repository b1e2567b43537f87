"""Write the tables of the documentation from the published results: ``python -m benchmarks.report``, ``make figures``.

``--json=FILE`` takes them from another file, such as ``.benchmarks/latest.json``. A generated part of a page is
between ``<!-- figures:name -->`` and ``<!-- /figures -->``; its name is a key of ``BLOCKS``. A test fails if a page
differs from what the published results give.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import CHECKOUT, results
from benchmarks.measures.backlog import EMPTY
from benchmarks.results import Measured, Row

BLOCK = re.compile(r"(<!-- figures:([a-z_]+) -->)(.*?)(<!-- /figures -->)", re.DOTALL)
PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]
UNKNOWN = "`make bench` measures it"
OURS_LOG, OURS_SILENT = "ours, with its log", "ours, silent"
BEST_LOG, BEST_SILENT = "node at its best, with its log", "node at its best, silent"
DEFAULT_LOG, DEFAULT_SILENT = "node, defaults, with its log", "node, defaults, silent"
# A figure is known to about this many digits.
DIGITS = 3


class Figures:
    """The recorded results. What was not measured is None, or has no rows."""

    def __init__(self, measured: dict[str, Measured]) -> None:
        self.measured = measured

    def rows(self, measure: str, table: str) -> list[Row]:
        tables = self.measured[measure].tables if measure in self.measured else []
        return next((each.rows for each in tables if each.key == table), [])

    def get(self, measure: str, table: str, label: str, metric: str) -> float | None:
        rows = self.rows(measure, table)
        return next((row.figures.get(metric) for row in rows if row.label == label), None)

    def preliminary(self, *measures: str) -> list[str]:
        """Return why the figures of some benchmarks are preliminary, each reason once and the first of its kind."""
        found = [self.measured[name].preliminary for name in measures if name in self.measured]
        return list(dict.fromkeys(_without_figures(reason) for reasons in found for reason in reasons))


def _without_figures(reason: str) -> str:
    if reason.startswith("the load average"):
        return "the load average was above 0.5"
    return "other programs ran" if reason.startswith("other programs") else reason


def rounded(value: float, digits: int = DIGITS) -> str:
    """Return a number with as many digits as are known: 43,912 as 43,900, and 1.2749 as 1.27."""
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if places <= 0:
        return f"{round(value, places):,.0f}"
    text = f"{round(value, places):,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [_line(head), "|" + "---|" * len(head), *(_line(row) for row in rows)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _table_of(head: Sequence[str], rows: Sequence[Row], metrics: Sequence[str]) -> str:
    return table(head, [[row.label, *(rounded(row.figures[metric]) for metric in metrics)] for row in rows])


# Trivial jobs, beside graphile-worker.

HEAD = ("", "this package", "graphile-worker at its best", "graphile-worker, defaults")
SILENT_ROWS = (OURS_SILENT, BEST_SILENT, DEFAULT_SILENT)
LOG_ROWS = (OURS_LOG, BEST_LOG, DEFAULT_LOG)
SYSTEMS_ROWS = ("ours, the system's Python, silent", BEST_SILENT, DEFAULT_SILENT)
QUEUE_ROWS = (OURS_SILENT, "node, tuned", "node, defaults")
LATENCY_ROWS = (OURS_LOG, "", DEFAULT_LOG)
IDLE_ROWS = ("ours", "", "node, defaults")
AS_STARTED = "trivial jobs a second, one process, as it is started (with its log, in a file)"
TO_FIRST_LINE = "from `add_job` to the first line of the task, idle worker, median"
# Each line: what it is, the unit, where the figures are (benchmark, table, metric), and the row of each column.
SUMMARY = (
    (AS_STARTED, "", ("drain", "drain_1", "rate"), LOG_ROWS),
    ("the same without the log", "", ("drain", "drain_1", "rate"), SILENT_ROWS),
    ("the same with the Python of the system", "", ("drain", "drain_1", "rate"), SYSTEMS_ROWS),
    ("two processes, with the log", "", ("drain", "drain_2", "rate"), LOG_ROWS),
    ("two processes, without the log", "", ("drain", "drain_2", "rate"), SILENT_ROWS),
    ("the same with the Python of the system", "", ("drain", "drain_2", "rate"), SYSTEMS_ROWS),
    ("5,000 jobs of one named queue, jobs a second", "", ("queues", "queues_1", "rate"), QUEUE_ROWS),
    ("5,000 jobs over 500 queues, jobs a second", "", ("queues", "queues_500", "rate"), QUEUE_ROWS),
    (TO_FIRST_LINE, " ms", ("latency", "latency", "p50"), LATENCY_ROWS),
    ("the same, 99th percentile", " ms", ("latency", "latency", "p99"), LATENCY_ROWS),
    ("transactions a second of an idle worker with 50 slots", "", ("idle", "idle", "transactions"), IDLE_ROWS),
    ("memory of that worker", " MB", ("idle", "idle", "memory"), IDLE_ROWS),
    (
        "from the command to the first line of the first job",
        " ms",
        ("start", "start", "wall"),
        ("ours, runworker", "", "node, command"),
    ),
    (
        "the same with the Python of the system",
        " ms",
        ("start", "start", "wall"),
        ("ours, the system's Python", "", ""),
    ),
)


def summary(figures: Figures) -> str:
    rows = []
    for title, unit, (measure, name, metric), labels in SUMMARY:
        found = [figures.get(measure, name, label, metric) for label in labels]
        if found[0] is not None:
            rows.append([title, *("" if value is None else f"{rounded(value)}{unit}" for value in found)])
    return table(HEAD, rows)


def throughput(figures: Figures) -> str:
    """Return the sentence of README.md."""
    started, best, silent, best_silent = (
        figures.get("drain", "drain_1", label, "rate") for label in (OURS_LOG, BEST_LOG, OURS_SILENT, BEST_SILENT)
    )
    queue = figures.get("queues", "queues_1", OURS_SILENT, "rate")
    if started is None or best is None or silent is None or best_silent is None or queue is None:
        return UNKNOWN
    return (
        f"{rounded(started, 2)} trivial jobs a second in one process as it is started, {started / best:.2g} times"
        f" graphile-worker at its best settings on the same two cores; without the logs of both {rounded(silent, 2)},"
        f" {silent / best_silent:.2g} times; {rounded(queue, 2)} jobs a second of one named queue"
    )


def cost(figures: Figures) -> str:
    """Return what a job costs worker and server."""
    worker, server, logging = (
        figures.get("drain", "drain_1", label, metric)
        for label, metric in ((OURS_SILENT, "worker_cpu"), (OURS_SILENT, "server_cpu"), (OURS_LOG, "worker_cpu"))
    )
    if worker is None or server is None or logging is None:
        return UNKNOWN
    return (
        f"about {worker:.0f} µs of CPU time in the worker, including the checks of connections and the statistics,"
        f" {logging - worker:.0f} µs more with its line in the log, and about {server:.0f} µs in the server"
    )


def settings(figures: Figures) -> str:
    """Return the best settings of graphile-worker that the search found."""
    parts = []
    for processes, words in ((1, "one process"), (2, "two processes")):
        rows = figures.rows("drain", f"grid_{processes}")
        if rows:
            best = max(rows, key=lambda row: row.figures["rate"])
            parts.append(f"for {words}: {best.label}")
    return f"The best settings of graphile-worker that the search found {'; '.join(parts)}." if parts else ""


def grid(figures: Figures) -> str:
    """Return all settings that were tried."""
    one, two = ({row.label: row for row in figures.rows("drain", f"grid_{number}")} for number in (1, 2))
    rows = [
        [label, *(rounded(cells[label].figures["rate"]) if label in cells else "" for cells in (one, two))]
        for label in one
    ]
    return table(("graphile-worker, without its log", "one process, jobs a second", "two processes"), rows)


# Jobs as people write them, beside other queues.

WORKS = {
    "orm": "two ORM queries and an update",
    "http": "an HTTP call of 20 ms, sync",
    "http_async": "an HTTP call of 20 ms, async",
    "cpu": "20 ms of computing",
}


def real_jobs(figures: Figures) -> str:
    sections = []
    for work, title in WORKS.items():
        rows = [
            [
                row.label,
                row.options,
                rounded(row.figures["rate"]),
                f"{row.figures['overhead']:+.0f} %" if row.label != "a bare loop" else "",
            ]
            for row in figures.rows("real_jobs", work)
        ]
        if rows:
            sections.append(table((title, "best settings", "jobs a second", "more time than a bare loop"), rows))
    return "\n\n".join(sections)


# Full tables.

SHAPES = {
    "future": "scheduled for later",
    "permanently failed": "permanently failed",
    "unknown task": "of a task that this worker does not have",
    "one busy queue": "behind one busy queue",
    "50,000 queues, future": "spread over 50,000 queues, for later",
    "50,000 queues, ready": "spread over 50,000 queues, ready",
    "50,000 busy queues": "behind 50,000 busy queues",
    "forbidden flag": "with a forbidden flag",
}
HELD_SNAPSHOT = {
    "rate": ("jobs a second", ""),
    "p50": ("from `add_job` to the start of the task, median", " ms"),
    "p90": ("the same, 90th percentile", " ms"),
    "p99": ("the same, 99th percentile", " ms"),
    "earlier": ("until a job starts whose time is a minute ago", " s"),
}


def backlog(figures: Figures) -> str:
    found = [(title, figures.get("backlog", "backlog", shape, "ratio")) for shape, title in SHAPES.items()]
    rows = [[title, f"{ratio:.2f}"] for title, ratio in found if ratio is not None]
    empty = figures.get("backlog", "backlog", EMPTY, "rate")
    text = table(("the other rows are", "relative throughput"), rows)
    return text if empty is None else f"{text}\n\nThe throughput on the empty table was {rounded(empty)} jobs a second."


def claims(figures: Figures) -> str:
    rows = [
        [row.label, rounded(row.figures["buffers"]), rounded(row.figures["milliseconds"], 2)]
        for row in figures.rows("claims", "claims")
    ]
    return table(("the other jobs in the table are", "buffers", "ms"), rows)


def held_snapshot(figures: Figures) -> str:
    rows = figures.rows("held_snapshot", "held_snapshot")
    lines = [
        [title, *(f"{rounded(row.figures[metric])}{unit}" for row in rows)]
        for metric, (title, unit) in HELD_SNAPSHOT.items()
    ]
    longest = max((row.figures["longest"] for row in rows), default=0.0)
    text = table(("", "without the snapshot", "with it"), lines)
    return f"{text}\n\nThe longest time of the last line was {rounded(longest)} s." if rows else text


# Adding jobs, and schedules.


def adding_one(figures: Figures) -> str:
    """Return how long adding one job takes, beside a row of the ORM."""
    within = {row.label: row.figures["call"] for row in figures.rows("api", "one_in_transaction")}
    rows = [
        [f"`{row.label}`", rounded(row.figures["call"]), rounded(within[row.label])]
        for row in figures.rows("api", "one")
    ]
    return table(("one row", "µs, in a transaction of its own", "µs, in one transaction for all"), rows)


def adding_many(figures: Figures) -> str:
    """Return how long adding many jobs takes, beside rows of the ORM."""
    rows = [
        [f"`{row.label}`", rounded(row.figures["seconds"]), rounded(100_000 / row.figures["seconds"])]
        for row in figures.rows("api", "many")
    ]
    return table(("100,000 rows", "seconds", "rows a second"), rows)


def schedules_idle(figures: Figures) -> str:
    """Return what schedules cost an idle worker."""
    metrics = ("transactions", "cpu", "server_cpu", "memory")
    head = (
        "an idle worker with",
        "transactions a minute",
        "CPU seconds a minute, worker",
        "the same, server",
        "MB of memory, worker",
    )
    return _table_of(head, figures.rows("schedules", "idle"), metrics)


def schedules_firing(figures: Figures) -> str:
    """Return how long it takes to fire many schedules that are due at the same minute."""
    metrics = ("added", "ran", "worker_cpu", "server_cpu")
    head = (
        "fired by",
        "seconds until all jobs were added",
        "until all have run",
        "CPU seconds, workers",
        "CPU seconds, server",
    )
    return _table_of(head, figures.rows("schedules", "firing"), metrics)


def schedules(figures: Figures) -> str:
    """Return both in a sentence."""
    idle, fired = figures.rows("schedules", "idle"), figures.get("schedules", "firing", "1 worker", "added")
    if not idle or fired is None:
        return UNKNOWN
    none, many = idle
    more, cpu = (many.figures[metric] - none.figures[metric] for metric in ("transactions", "cpu"))
    number = many.label.partition(" schedules")[0]
    return (
        f"{number} schedules that are not due cost an idle worker {max(0.0, more):.0f} more transactions and"
        f" {max(0.0, cpu):.2f} more seconds of CPU time a minute; if all of them are due at the same minute, one worker"
        f" has added their jobs after {fired:.2g} s"
    )


# The pages.


def _conditions(*measures: str) -> Callable[[Figures], str]:
    """Return a block that says where the figures were measured, and whether they are final."""

    def conditions(figures: Figures) -> str:
        found = [figures.measured[name] for name in measures if name in figures.measured]
        if not found:
            return "These figures have not been measured yet."
        machine, newest = found[0].machine, max(each.measured_at for each in found)
        python = f"Python {machine['python']}" + (
            "" if machine["python_is_optimized"] else " (built without optimizations)"
        )
        versions = ", ".join(f"{name} {machine[name]}" for name in ("Django", "psycopg", "PostgreSQL"))
        text = (
            f"Measured on {newest[:10]} with {machine['cores']} cores ({machine['processor']}), {machine['system']},"
            f" {python}, {versions}; clients, workers and server share the cores."
        )
        reasons = figures.preliminary(*measures)
        return f"{text} **These figures are preliminary:** {'; '.join(reasons)}." if reasons else text

    return conditions


BLOCKS: dict[str, Callable[[Figures], str]] = {
    "throughput": throughput,
    "cost": cost,
    "conditions": _conditions("drain", "queues", "latency", "idle", "start", "backlog"),
    "summary": summary,
    "settings": settings,
    "grid": grid,
    "backlog": backlog,
    "held_snapshot_conditions": _conditions("held_snapshot"),
    "held_snapshot": held_snapshot,
    "claims_conditions": _conditions("claims"),
    "claims": claims,
    "schedules_conditions": _conditions("schedules"),
    "schedules_idle": schedules_idle,
    "schedules_firing": schedules_firing,
    "schedules": schedules,
    "adding_conditions": _conditions("api"),
    "adding_one": adding_one,
    "adding_many": adding_many,
    "real_conditions": _conditions("real_jobs"),
    "real_jobs": real_jobs,
}


def filled(text: str, figures: Figures) -> str:
    """Return the text of a page with its generated parts. A part that begins a line is a paragraph of its own."""

    def fill(found: re.Match[str]) -> str:
        before, name, old, after = found.groups()
        content = BLOCKS[name](figures)
        return f"{before}\n\n{content}\n\n{after}" if old.startswith("\n") else f"{before}{content}{after}"

    return BLOCK.sub(fill, text)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--json", type=Path, default=results.PUBLISHED, metavar="FILE")
    measured = results.read(parser.parse_args(arguments).json)
    figures = Figures(measured)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        new = filled(text, figures)
        if new != text:
            page.write_text(new, encoding="utf-8")
            print(f"wrote {page.relative_to(CHECKOUT)}")
    for name, each in measured.items():
        for reason in each.preliminary:
            print(f"warning: {name} is preliminary: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
