"""The tables on schedules."""

from __future__ import annotations

from benchmarks.report.figures import Figures, rounded
from benchmarks.report.markdown import table


def idle(figures: Figures) -> str:
    """Return what schedules cost an idle worker."""
    metrics = ("transactions", "cpu", "server_cpu", "memory")
    rows = [
        [row.label, *(rounded(row.median(metric)) for metric in metrics)] for row in figures.rows("schedules", "idle")
    ]
    head = (
        "an idle worker with",
        "transactions a minute",
        "CPU seconds a minute, worker",
        "the same, server",
        "MB of memory, worker",
    )
    return table(head, rows)


def firing(figures: Figures) -> str:
    """Return how long it takes to fire many schedules that are due at the same minute."""
    metrics = ("added", "ran", "worker_cpu", "server_cpu")
    rows = [
        [row.label, *(rounded(row.median(metric)) for metric in metrics)] for row in figures.rows("schedules", "firing")
    ]
    head = (
        "fired by",
        "seconds until all jobs were added",
        "until all have run",
        "CPU seconds, workers",
        "CPU seconds, server",
    )
    return table(head, rows)
