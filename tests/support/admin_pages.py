"""The admin in tests: addresses of its pages, the text of a response, rows to show, and actions on jobs."""

from __future__ import annotations

import html
import json
import re
import time
from typing import Any

from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client

from django_graphile_worker.admin.audit import message_of
from tests.support.operating import execute
from tests.support.recorded_statistics import append_and_fold, make_row

BASE = "/admin/graphile_worker/"
OVERVIEW, JOBS, QUEUES = BASE + "overview/", BASE + "job/", BASE + "jobqueue/"
WORKERS, ERRORS = BASE + "worker/", BASE + "errorgroup/"
EVENTS, SCHEDULES = BASE + "event/", BASE + "schedule/"
HISTORY, PAUSES, LIMITS = BASE + "pastattempt/", BASE + "pausedwork/", BASE + "limitkey/"
ADD, ACT, ACT_ON_SCHEDULES = JOBS + "add/", JOBS + "act/", SCHEDULES + "act/"
ALL_PAGES = (OVERVIEW, JOBS, QUEUES, PAUSES, LIMITS, SCHEDULES, WORKERS, EVENTS, ERRORS, HISTORY, ADD)


def job_url(job_id: int) -> str:
    return f"{JOBS}{job_id}/change/"


CSRF_TOKEN = re.compile(r'(?<=name="csrfmiddlewaretoken" value=")[^"]*')


def body(response: Any) -> str:
    """Return the HTML of a page, without its CSRF tokens: they are random and may contain any short word."""
    return CSRF_TOKEN.sub("", str(response.content.decode()))


def text(response: Any) -> str:
    """Return what a user reads: no tags, entities resolved, white space as it is shown."""
    without_head = re.sub(r"(?s)<head>.*?</head>", "", body(response))
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", without_head)).split())


def fields(response: Any) -> dict[str, str]:
    """Return the hidden fields of the forms on a page."""
    hidden = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', body(response))
    return {name: html.unescape(value) for name, value in hidden}


def messages(response: Any) -> list[str]:
    """Return what the messages of a page say, without their links."""
    return [html.unescape(re.sub(r"<[^>]*>", "", str(message))) for message in response.context["messages"]]


def act(client: Client, action: str, *ids: int, **data: Any) -> Any:
    """Run an action on selected jobs."""
    return client.post(ACT, {"action": action, "id": ids, **data}, follow=True)


def act_on_all(client: Client, action: str, query: str = "", **data: Any) -> Any:
    """Run an action on all jobs that match a search."""
    return client.post(ACT, {"action": action, "all": "1", "q": query, **data}, follow=True)


def log_entries() -> list[tuple[str, str]]:
    """Return the entries of the admin's log: object and message."""
    return [(entry.object_repr, message_of(entry)) for entry in LogEntry.objects.order_by("pk")]


class StatementRecorder:
    """An execute wrapper that keeps the statements."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        self.statements.append(sql)
        return execute(sql, params, many, context)


def make_worker(worker_id: str, *, silent: float = 1.0, **metadata: Any) -> str:
    """Insert a worker whose last heartbeat was `silent` seconds ago."""
    execute(
        "insert into {schema}._private_workers (id, last_heartbeat_at, metadata, timeout_seconds)"
        " values (%s, now() - %s * interval '1 second', %s, 60)",
        [worker_id, silent, json.dumps(metadata)],
    )
    return worker_id


def record_statistics(schema: str, task: str, **counts: Any) -> int:
    """Record counts of a task in the current minute; return when the minute began."""
    histogram = {20: counts.get("succeeded", 0)}
    row = make_row(task, time.time(), run_microseconds=1_000_000, durations=histogram, waits=histogram, **counts)
    with connection.cursor() as cursor:
        append_and_fold(cursor, [row], schema=schema)
    return row.started_at
