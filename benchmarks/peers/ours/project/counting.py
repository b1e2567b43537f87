"""Changes the statistics of this worker, to measure what they cost: ``off`` or ``timed``."""

from __future__ import annotations

import atexit
import os
import time
from typing import Any

from django_graphile_worker.sql import statistics
from django_graphile_worker.worker.reporting.statistics import StatisticsBuffer


def change(mode: str) -> None:
    if mode == "off":
        StatisticsBuffer.add = lambda *arguments: None  # type: ignore[method-assign]
    elif mode == "timed":
        _time_statistics()


def _time_statistics() -> None:
    """Write the CPU seconds of counting and of writing to the database to the file COUNTED at the end."""
    seconds: list[float] = []

    def timed(function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                seconds.append(time.thread_time() - began)

        return call

    def write() -> None:
        with open(os.environ["COUNTED"], "w") as file:  # noqa: PTH123 - as in shop/tasks.py
            file.write(f"{sum(seconds)} {time.process_time()}")

    StatisticsBuffer.add = timed(StatisticsBuffer.add)  # type: ignore[method-assign]
    statistics.append = timed(statistics.append)
    atexit.register(write)
