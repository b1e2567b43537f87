"""The database time of the admin's pages and actions on a large table, and the cost of statistics in a worker.

Each page is opened several times; the figures are the number of statements, and the time of the database. ``--only``
chooses among pages, actions and statistics. With ``--keep`` the database stays, and the next run with the same name
uses it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.admin_site import load, load_schedules, scratch_site
from benchmarks.database import SCHEMA
from benchmarks.results import Metric, Row, Table
from benchmarks.session import Session

ROUNDS = 7
PAGES = {
    "overview": "overview/",
    "overview, a week": "overview/?span=week",
    "jobs": "job/",
    "jobs, ready": "job/?state=ready",
    "jobs, scheduled": "job/?state=scheduled",
    "jobs, running": "job/?state=running",
    "jobs, retrying": "job/?state=retrying",
    "jobs, failed": "job/?state=failed",
    "jobs, ready, of a task": "job/?state=ready&q=task:task_7",
    "jobs, ready, of a queue": "job/?state=ready&q=queue:queue_30",
    "jobs, failed, of an exception": "job/?state=failed&q=exception:KeyError",
    "jobs of a task": "job/?q=task:task_7",
    "jobs of a queue": "job/?q=queue:queue_30",
    "jobs of a task or a queue": "job/?q=task:task_7+OR+queue:queue_30",
    "jobs of all tasks but one": "job/?q=-task:task_7",
    "jobs, by a word": "job/?q=task_7",
    "jobs, by an unknown word": "job/?q=nothing",
    "jobs, by text in payloads (none)": "job/?q=payload:nope",
    "completion of a task": "job/complete/?typed=task:task_1",
    "completion of a queue": "job/complete/?typed=queue:queue_3",
    "jobs, by key (none)": "job/?q=key:nope",
    "jobs, by payload (none)": "job/?state=ready&q=payload.user:nope",
    "jobs, by error text (none)": "job/?state=failed&q=error:nope",
    "a job": "job/{id}/change/",
    "queues": "jobqueue/",
    "schedules": "schedule/",
    "schedules, failing": "schedule/?state=failing",
    "schedules, by a word": "schedule/?q=tenant",
    "schedules, by words, of a task": "schedule/?q=tenant+77&task=task_18",
    "schedules, by the next time": "schedule/?sort=next",
    "schedules, by name, the last page": "schedule/?sort=-name&page={last_page}",
    "workers": "worker/",
    "errors": "errorgroup/",
}


class Stopwatch:
    """A counter of statements and of the seconds that the database took for them."""

    def __init__(self) -> None:
        self.statements, self.seconds = 0, 0.0

    def __call__(self, execute: Any, *arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return execute(*arguments)
        finally:
            self.statements += 1
            self.seconds += time.perf_counter() - began


def measure_pages(session: Session, job_id: int, count: int, schedules: int) -> None:
    # Late import: Django must be set up first.
    from django.contrib.auth import get_user_model
    from django.db import connection
    from django.test import Client

    client = Client()
    client.force_login(
        get_user_model().objects.get_or_create(username="benchmark", is_staff=True, is_superuser=True)[0]
    )
    rows = []
    for name, path in PAGES.items():
        watches: list[Stopwatch] = []
        rows.append(Row(name, name, settings={"jobs": count, "schedules": schedules}))
        for _ in range(ROUNDS):
            watches.append(Stopwatch())
            with connection.execute_wrapper(watches[-1]):
                response = client.get("/admin/graphile_worker/" + path.format(id=job_id, last_page=schedules // 50))
            assert response.status_code == 200, (name, response.status_code)
            rows[-1].add({"milliseconds": watches[-1].seconds * 1000, "statements": watches[-1].statements})
    metrics = [Metric("milliseconds", "ms", 1), Metric("statements", "statements")]
    session.add(Table("pages", "Pages, time of the database", metrics, rows))


ACTIONS = {
    "run all failed jobs": ("run", "failed", ""),
    "priority of all ready jobs": ("reschedule", "ready", ""),
    "fail all ready jobs of a task": ("fail", "ready", "task:task_7"),
    "remove all scheduled jobs": ("remove", "scheduled", ""),
    "remove all other jobs": ("remove", "all", ""),
}


def measure_actions(session: Session) -> None:
    """Measure actions on all jobs that match, one after the other, and confirm each page that asks to continue."""
    # Late import: Django must be set up first.
    from django.contrib.auth import get_user_model
    from django.contrib.messages import get_messages
    from django.test import Client

    client = Client()
    users = get_user_model().objects
    client.force_login(users.get_or_create(username="benchmark", is_staff=True, is_superuser=True)[0])
    rows = []
    for name, (action, state, query) in ACTIONS.items():
        steps: list[float] = []
        fields = {"action": action, "state": state, "q": query, "all": "1", "confirmed": "1", "priority": "7"}
        began, requests = time.perf_counter(), 1
        with timed_steps(steps):
            page = client.post("/admin/graphile_worker/job/act/", fields)
            while page.status_code == 200:
                requests += 1
                page = client.post("/admin/graphile_worker/job/act/", dict((page.context_data or {})["hidden"]))
        seconds = time.perf_counter() - began
        told = "; ".join(str(message) for message in get_messages(page.wsgi_request))
        rows.append(Row(name, f"{name}: {told}"))
        figures = {"seconds": seconds, "longest": max(steps) * 1000, "steps": len(steps), "requests": requests}
        rows[-1].add(figures)
        client.get("/admin/graphile_worker/schedule/")
    metrics = [
        Metric("seconds", "s", 1),
        Metric("longest", "ms in the longest step"),
        Metric("steps", "steps"),
        Metric("requests", "requests"),
    ]
    session.add(Table("actions", "Actions on all matching jobs", metrics, rows))


@contextmanager
def timed_steps(steps: list[float]) -> Iterator[None]:
    # Late import: Django must be set up first.
    from django.db import connection

    def watch(execute: Any, statement: str, *arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return execute(statement, *arguments)
        finally:
            if "-all */" in statement:
                steps.append(time.perf_counter() - began)

    with connection.execute_wrapper(watch):
        yield


def measure_statistics(session: Session) -> None:
    # Late import: Django must be set up first.
    from django_graphile_worker.sql.claims import Claim
    from django_graphile_worker.worker.outcomes import Succeeded
    from django_graphile_worker.worker.reporting.statistics import StatisticsBuffer

    now = time.time()
    rows = []
    for size in (1, 10, 100, 1000):
        outcomes = [
            Succeeded(
                Claim(n, n % 5, 1, "{}", None, 0, now, 25, None, 0, None, None, now, now, None, "benchmark/1"), 0.001
            )
            for n in range(size)
        ]
        buffer = StatisticsBuffer()
        times = []
        for _ in range(max(20_000 // size, 20)):
            began = time.perf_counter()
            buffer.add(outcomes, str)
            times.append(time.perf_counter() - began)
        rows.append(Row(str(size), f"in batches of {size:,}", {"best": [min(times) / size * 1e6]}))
    session.add(Table("statistics", "Statistics, for each job", [Metric("best", "µs", 2)], rows))


def measure(session: Session) -> None:
    wanted = (session.options.only or "pages,statistics").split(",")
    count = session.options.jobs or session.amount(2_000_000, 100_000)
    schedules = session.amount(10_000, 1_000)
    with scratch_site(session.options.keep) as connection:
        if not connection.execute(f"select 1 from {SCHEMA}._private_jobs limit 1".encode()).fetchone():
            load(connection, count)
        if not connection.execute(f"select 1 from {SCHEMA}._private_schedules limit 1".encode()).fetchone():
            load_schedules(connection, schedules)
        if "pages" in wanted:
            found = connection.execute(f"select max(id) from {SCHEMA}._private_jobs".encode()).fetchone()
            measure_pages(session, found[0] if found else 1, count, schedules)
        if "actions" in wanted:
            measure_actions(session)
    if "statistics" in wanted:
        measure_statistics(session)
