"""Sentences with figures, inside the text of pages."""

from __future__ import annotations

import statistics

from benchmarks.report.comparison import BEST_LOG, BEST_SILENT, OURS_LOG, OURS_SILENT
from benchmarks.report.figures import Figures, Place, rounded

UNKNOWN = "`make bench` measures it"


def throughput(figures: Figures) -> str:
    """Return the sentence of README.md."""
    started, best, silent, best_silent = (
        figures.get(Place("drain", "drain_1", row, "rate")) for row in (OURS_LOG, BEST_LOG, OURS_SILENT, BEST_SILENT)
    )
    queue = figures.get(Place("queues", "queues_1", OURS_SILENT, "rate"))
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
        figures.get(Place("drain", "drain_1", row, metric))
        for row, metric in ((OURS_SILENT, "worker_cpu"), (OURS_SILENT, "server_cpu"), (OURS_LOG, "worker_cpu"))
    )
    share = figures.get(Place("counting", "counting", "timed", "share"))
    if worker is None or server is None or logging is None:
        return UNKNOWN
    counting = "" if share is None else f" ({share:.1f} % of it)"
    return (
        f"about {worker:.0f} µs of CPU time in the worker, including the checks of connections and the"
        f" statistics{counting}, {logging - worker:.0f} µs more with its line in the log, and about {server:.0f} µs in"
        " the server"
    )


def admin(figures: Figures) -> str:
    """Return what the pages of the admin cost the database."""
    rows = figures.rows("admin", "pages")
    if not rows:
        return UNKNOWN
    times = [row.median("milliseconds") for row in rows]
    half = max(1, round(statistics.median(times)))
    return (
        f"of {rows[0].settings['jobs']:,} jobs, the slowest page takes the database {max(times):.0f} ms, and half of"
        f" the pages take less than {half} ms"
    )


def counting(figures: Figures) -> str:
    """Return what statistics cost a worker."""
    found = figures.get(Place("admin", "statistics", "100", "best"))
    return UNKNOWN if found is None else f"{found:.1f} µs per job"


def schedules(figures: Figures) -> str:
    """Return what many schedules cost an idle worker, and how long it takes to fire them."""
    none, many = (figures.row("schedules", "idle", key) for key in ("none", "many"))
    fired = figures.get(Place("schedules", "firing", "1 worker", "added"))
    if none is None or many is None or fired is None:
        return UNKNOWN
    more, cpu = (many.median(metric) - none.median(metric) for metric in ("transactions", "cpu"))
    number = many.label.partition(" schedules")[0]
    return (
        f"{number} schedules that are not due cost an idle worker {max(0.0, more):.0f} more transactions and"
        f" {max(0.0, cpu):.2f} more seconds of CPU time a minute; if all of them are due at the same minute, one worker"
        f" has added their jobs after {fired:.2g} s"
    )
