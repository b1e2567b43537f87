"""A worker of this package that is measured; it writes the same messages as ``node_worker.mjs``."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from typing import Any

import django

django.setup()

import psycopg  # noqa: E402

from django_graphile_worker import task  # noqa: E402
from django_graphile_worker.worker.entrypoints import Worker  # noqa: E402

COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 0
_numbers = iter(range(1, 10**9))
_finished = threading.Event()
_first_at: list[float] = []
_started = 0


@task
def noop(payload: Any) -> None:
    global _started
    _started = number = next(_numbers)
    if number == 1:
        _first_at.append(time.perf_counter())
    if number == COUNT:
        _finished.set()


@task
def stamp(payload: Any) -> None:
    say({"number": payload["number"], "at": time.time() * 1000})


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def count_nothing() -> None:
    """Switch statistics off, to measure their cost."""
    from django_graphile_worker.worker.reporting.statistics_buffer import StatisticsBuffer

    StatisticsBuffer.add = lambda *arguments: None  # type: ignore[method-assign]


def time_counting() -> list[float]:
    """Return a list to which the CPU seconds of statistics are added: of counting, and of writing to the database."""
    from django_graphile_worker.sql import statistics
    from django_graphile_worker.worker.reporting.statistics_buffer import StatisticsBuffer

    seconds: list[float] = []

    def timed(function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                seconds.append(time.thread_time() - began)

        return call

    StatisticsBuffer.add = timed(StatisticsBuffer.add)  # type: ignore[method-assign]
    statistics.append = timed(statistics.append)
    return seconds


def main() -> None:
    counting: list[float] = []
    if os.environ.get("COUNT_NOTHING") == "1":
        count_nothing()
    elif "COUNT_NOTHING" in os.environ:
        counting = time_counting()
    logging.getLogger("django_graphile_worker").setLevel(logging.ERROR)
    overrides = json.loads(os.environ.get("SETTINGS", "{}"))
    before = time.process_time()
    with Worker(log_success=False, **overrides):
        say({"ready": True})
        if sys.argv[1] == "serve":
            sys.stdin.read()
            return
        _finished.wait(float(os.environ.get("TIME_LIMIT", "60")))
        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
            while _finished.is_set() and connection.execute(os.environ["LEFT_QUERY"].encode()).fetchone()[0]:  # type: ignore[index]
                threading.Event().wait(0.002)
        seconds = time.perf_counter() - (_first_at[0] if _first_at else time.perf_counter())
        usage = time.process_time() - before
        about = {"cpu": usage, "counting": sum(counting)}
        # The thread with the last number need not be the last to assign it.
        jobs = COUNT if _finished.is_set() else min(_started, COUNT)
        say({"seconds": seconds, "jobs": jobs, **about})


if __name__ == "__main__":
    main()
