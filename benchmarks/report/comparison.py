"""The tables that compare this package with graphile-worker and with other queues."""

from __future__ import annotations

from benchmarks.measures.backlog import EMPTY
from benchmarks.peers.peer import label_of
from benchmarks.report.figures import Figures, Place, rounded
from benchmarks.report.markdown import table

OURS_LOG, OURS_SILENT = "ours, with its log", "ours, silent"
BEST_LOG, BEST_SILENT = "node at its best, with its log", "node at its best, silent"
OURS_ON_SYSTEMS_PYTHON = "ours, the system's Python, silent"
DEFAULT_LOG, DEFAULT_SILENT = "node, defaults, with its log", "node, defaults, silent"
HEAD = ("", "this package", "graphile-worker at its best", "graphile-worker, defaults")
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
WORKS = {
    "orm": "two ORM queries and an update",
    "http": "an HTTP call of 20 ms, sync",
    "http_async": "an HTTP call of 20 ms, async",
    "cpu": "20 ms of computing",
}


NODE = ("node, tuned", "node, defaults")
# Each row: what it is, the unit, where the figures are (benchmark, table, metric), and the row of each column.
SUMMARY: tuple[tuple[str, str, tuple[str, str, str], tuple[str, str, str]], ...] = (
    (
        "trivial jobs a second, one process, as it is started (with its log, in a file)",
        "",
        ("drain", "drain_1", "rate"),
        (OURS_LOG, BEST_LOG, DEFAULT_LOG),
    ),
    ("the same without the log", "", ("drain", "drain_1", "rate"), (OURS_SILENT, BEST_SILENT, DEFAULT_SILENT)),
    (
        "the same with the Python of the system",
        "",
        ("drain", "drain_1", "rate"),
        (OURS_ON_SYSTEMS_PYTHON, BEST_SILENT, DEFAULT_SILENT),
    ),
    ("two processes, with the log", "", ("drain", "drain_2", "rate"), (OURS_LOG, BEST_LOG, DEFAULT_LOG)),
    ("two processes, without the log", "", ("drain", "drain_2", "rate"), (OURS_SILENT, BEST_SILENT, DEFAULT_SILENT)),
    (
        "the same with the Python of the system",
        "",
        ("drain", "drain_2", "rate"),
        (OURS_ON_SYSTEMS_PYTHON, BEST_SILENT, DEFAULT_SILENT),
    ),
    ("5,000 jobs of one named queue, jobs a second", "", ("queues", "queues_1", "rate"), (OURS_SILENT, *NODE)),
    ("5,000 jobs over 500 queues, jobs a second", "", ("queues", "queues_500", "rate"), (OURS_SILENT, *NODE)),
    (
        "from `add_job` to the first line of the task, idle worker, median",
        " ms",
        ("latency", "latency", "p50"),
        (OURS_LOG, "", DEFAULT_LOG),
    ),
    ("the same, 99th percentile", " ms", ("latency", "latency", "p99"), (OURS_LOG, "", DEFAULT_LOG)),
    (
        "transactions a second of an idle worker with 50 slots",
        "",
        ("idle", "idle", "transactions"),
        ("ours", "", "node, defaults"),
    ),
    ("memory of that worker", " MB", ("idle", "idle", "memory"), ("ours", "", "node, defaults")),
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
    for title, unit, (measure, name, metric), columns in SUMMARY:
        found = [figures.get(Place(measure, name, row, metric)) for row in columns]
        if found[0] is not None:
            rows.append([title, *("" if value is None else f"{rounded(value)}{unit}" for value in found)])
    return table(HEAD, rows)


def backlog(figures: Figures) -> str:
    found = [(title, figures.get(Place("backlog", "backlog", shape, "ratio"))) for shape, title in SHAPES.items()]
    rows = [[title, f"{ratio:.2f}"] for title, ratio in found if ratio is not None]
    empty = figures.get(Place("backlog", "backlog", EMPTY, "rate"))
    text = table(("the other rows are", "relative throughput"), rows)
    return text if empty is None else f"{text}\n\nThe throughput on the empty table was {rounded(empty)} jobs a second."


HELD_SNAPSHOT = {
    "rate": ("jobs a second", ""),
    "p50": ("from `add_job` to the start of the task, median", " ms"),
    "p90": ("the same, 90th percentile", " ms"),
    "p99": ("the same, 99th percentile", " ms"),
    "earlier": ("until a job starts whose time is a minute ago", " s"),
}


def held_snapshot(figures: Figures) -> str:
    rows = figures.rows("held_snapshot", "held_snapshot")
    lines = [
        [title, *(f"{rounded(row.median(metric))}{unit}" for row in rows)]
        for metric, (title, unit) in HELD_SNAPSHOT.items()
    ]
    longest = max((max(row.samples["earlier"]) for row in rows), default=0.0)
    text = table(("", "without the snapshot", "with it"), lines)
    return f"{text}\n\nThe longest time of the last line was {rounded(longest)} s." if rows else text


def settings(figures: Figures) -> str:
    """Return the best settings of graphile-worker that the search found."""
    parts = []
    for processes, words in ((1, "one process"), (2, "two processes")):
        rows = figures.rows("drain", f"grid_{processes}")
        if rows:
            best = max(rows, key=lambda row: row.median("rate"))
            parts.append(f"for {words}: {best.label}")
    return f"The best settings of graphile-worker that the search found {'; '.join(parts)}." if parts else ""


def grid(figures: Figures) -> str:
    """Return all settings that were tried."""
    one, two = ({row.label: row for row in figures.rows("drain", f"grid_{number}")} for number in (1, 2))
    rows = [
        [label, *(rounded(cells[label].median("rate")) if label in cells else "" for cells in (one, two))]
        for label in one
    ]
    return table(("graphile-worker, without its log", "one process, jobs a second", "two processes"), rows)


def real_jobs(figures: Figures) -> str:
    sections = []
    for work, title in WORKS.items():
        rows = [
            [
                row.label.partition(" (")[0],
                label_of(row.settings),
                rounded(row.median("rate")),
                f"{row.median('overhead'):+.0f} %" if row.key != "a bare loop" else "",
            ]
            for row in figures.rows("real_jobs", work)
        ]
        if rows:
            sections.append(table((title, "best settings", "jobs a second", "more time than a bare loop"), rows))
    return "\n\n".join(sections)


def claims(figures: Figures) -> str:
    rows = [
        [row.label, rounded(row.median("buffers")), rounded(row.median("milliseconds"), 2)]
        for row in figures.rows("claims", "claims")
    ]
    return table(("the other jobs in the table are", "buffers", "ms"), rows)
