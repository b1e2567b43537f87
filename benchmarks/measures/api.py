"""The Python API beside the ORM, in interleaved runs on one connection.

`add_job()` is compared with `create()` of a similar row, `add_jobs()` with `bulk_create()` of the same number of rows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import django

from benchmarks.servers import server_url

server_url()  # the settings read the URL
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
os.environ["DEBUG"] = "0"  # with DEBUG, Django keeps a log of every statement
django.setup()

from django.conf import settings  # noqa: E402
from django.db import connection, models, transaction  # noqa: E402

from benchmarks.session import Metric, Samples, Session  # noqa: E402
from django_graphile_worker import JobSpec, add_job, add_jobs, conf  # noqa: E402
from django_graphile_worker.sql.statements import table  # noqa: E402
from testproject import databases  # noqa: E402

PAYLOAD = {"to": "a@example.com", "order": 4711, "lines": [1, 2, 3]}


class Row(models.Model):
    """A row like that of a job: a name, a payload, a time."""

    name = models.TextField()
    payload = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)
    objects: models.Manager[Row] = models.Manager()

    class Meta:
        app_label = "benchmarks"

    def __str__(self) -> str:
        return self.name


@contextmanager
def scratch_database() -> Iterator[None]:
    databases.ensure_running()
    name = settings.DATABASES["default"]["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    with connection.schema_editor() as editor:
        editor.create_model(Row)
    try:
        yield
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)


def compare(
    session: Session,
    key: str,
    title: str,
    candidates: dict[str, Callable[[], Any]],
    *,
    metric: Metric,
    unit: float,
    rounds: int,
    calls: int,
) -> None:
    """Measure the time of a call. Each round runs every candidate, so that a slow moment affects all."""
    samples = {name: Samples() for name in candidates}
    with session.steps(title, rounds) as step:
        for number in range(rounds):
            step(f"round {number + 1}")
            for name, candidate in candidates.items():
                empty()
                start = time.perf_counter()
                for _ in range(calls):
                    candidate()
                samples[name].add({metric.key: (time.perf_counter() - start) / calls * unit})
    session.add(key, title, [metric], samples, baseline=next(iter(candidates)))


def empty() -> None:
    """Delete all rows, so that no candidate works with larger indexes than another."""
    jobs = table("_private_jobs", conf.current().schema)
    with connection.cursor() as cursor:
        cursor.execute(f"truncate {jobs}, {Row._meta.db_table}")


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
    specs = [JobSpec("send_email", PAYLOAD) for _ in range(count)]
    return {
        "bulk_create()": lambda: Row.objects.bulk_create(
            [Row(name="send_email", payload=PAYLOAD) for _ in range(count)]
        ),
        "add_jobs()": lambda: add_jobs([JobSpec("send_email", PAYLOAD) for _ in range(count)]),
        "add_jobs(returning=False)": lambda: add_jobs(
            (JobSpec("send_email", PAYLOAD) for _ in range(count)), returning=False
        ),
        "add_jobs(specs), made before": lambda: add_jobs(specs),
        "add_jobs(specs, returning=False), made before": lambda: add_jobs(specs, returning=False),
    }


def measure(session: Session) -> None:
    rounds = session.options.rounds or session.amount(25, 3)
    many, calls = session.amount(100_000, 10_000), session.amount(200, 50)
    one: dict[str, Any] = {"metric": Metric("call", "µs", 1), "unit": 1e6, "rounds": rounds, "calls": calls}
    with scratch_database():
        compare(session, "one", "One row, a transaction each", one_job(), **one)
        with transaction.atomic():
            compare(session, "one_in_transaction", "One row, inside one transaction", one_job(), **one)
        rate = Metric("seconds", "s", 3)
        compare(session, "many", f"{many:,} rows", many_jobs(many), metric=rate, unit=1, rounds=3, calls=1)
