"""Compare the Python API with the ORM: medians of interleaved runs on one connection.

    python -m benchmarks.bench_api

`add_job()` is compared with `create()` of a similar row, `add_jobs()` with `bulk_create()` of the same number of rows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
os.environ["DEBUG"] = "0"  # with DEBUG, Django keeps a log of every statement
django.setup()

from django.conf import settings  # noqa: E402
from django.db import connection, models, transaction  # noqa: E402

from django_graphile_worker import JobSpec, add_job, add_jobs  # noqa: E402
from testproject import databases  # noqa: E402

PAYLOAD = {"to": "a@example.com", "order": 4711, "lines": [1, 2, 3]}


class Row(models.Model):
    """A row like that of a job: a name, a payload, a time."""

    name = models.TextField()
    payload = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "benchmarks"

    def __str__(self) -> str:
        return self.name


@contextmanager
def scratch_database() -> Iterator[None]:
    databases.ensure_running()
    name = settings.DATABASES["default"]["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    with connection.schema_editor() as editor:
        editor.create_model(Row)
    try:
        yield
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)


def interleaved(candidates: dict[str, Callable[[], Any]], *, rounds: int, calls: int) -> dict[str, float]:
    """Return the median seconds per call. Each round runs every candidate, so that a slow moment affects all."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, candidate in candidates.items():
            start = time.perf_counter()
            for _ in range(calls):
                candidate()
            times[name].append((time.perf_counter() - start) / calls)
    return {name: statistics.median(measured) for name, measured in times.items()}


def tell(title: str, results: dict[str, float], unit: float, suffix: str) -> None:
    first = next(iter(results.values()))
    print(title)
    for name, seconds in results.items():
        print(f"  {name:<40} {seconds * unit:>10.1f} {suffix}   {seconds / first:>5.2f}x")


def one_job() -> dict[str, Callable[[], Any]]:
    return {
        "Model.objects.create()": lambda: Row.objects.create(name="send_email", payload=PAYLOAD),
        "add_job()": lambda: add_job("send_email", PAYLOAD),
        "add_job(queue_name=, priority=, flags=)": lambda: add_job(
            "send_email", PAYLOAD, queue_name="mail", priority=5, flags=["slow"]
        ),
        "add_job(job_key=)": lambda: add_job("send_email", PAYLOAD, job_key="the same"),
    }


def many_jobs(count: int) -> dict[str, Callable[[], Any]]:
    return {
        "bulk_create()": lambda: Row.objects.bulk_create(
            [Row(name="send_email", payload=PAYLOAD) for _ in range(count)]
        ),
        "add_jobs()": lambda: add_jobs([JobSpec("send_email", PAYLOAD) for _ in range(count)]),
        "add_jobs(returning=False)": lambda: add_jobs(
            (JobSpec("send_email", PAYLOAD) for _ in range(count)), returning=False
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--many", type=int, default=100_000)
    options = parser.parse_args()
    with scratch_database():
        tell(
            "One row, a transaction each",
            interleaved(one_job(), rounds=options.rounds, calls=options.calls),
            1e6,
            "µs",
        )
        with transaction.atomic():
            tell(
                "One row, inside one transaction",
                interleaved(one_job(), rounds=options.rounds, calls=options.calls),
                1e6,
                "µs",
            )
        tell(
            f"{options.many:,} rows",
            interleaved(many_jobs(options.many), rounds=3, calls=1),
            1.0,
            "s",
        )


if __name__ == "__main__":
    main()
