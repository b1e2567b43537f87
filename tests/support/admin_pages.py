"""The admin in tests: addresses of its pages, the text of a response, rows to show, and actions on jobs."""

from __future__ import annotations

import html
import json
import re
import time
from typing import Any
from urllib.parse import urlencode

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
ADD, ACT = JOBS + "add/", JOBS + "act/"
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


def listed(response: Any) -> list[Any]:
    """Return the jobs of a page of the list."""
    return list(response.context["cl"].result_list)


def rows(response: Any) -> list[Any]:
    """Return the rows of a page of the list of schedules."""
    return [schedule.row for schedule in response.context["cl"].result_list]


def search_errors(response: Any) -> tuple[str, ...]:
    """Return what the list of jobs says about an error in its search."""
    found: tuple[str, ...] = response.context["cl"].search.errors
    return found


def messages(response: Any) -> list[str]:
    """Return what the messages of a page say, without their links."""
    return [html.unescape(re.sub(r"<[^>]*>", "", str(message))) for message in response.context["messages"]]


def act(
    client: Client, action: str, *ids: int, confirmed: str = "", back: str = "", url: str = ACT, **data: Any
) -> Any:
    """Run an action on these jobs, as the button of another page; confirm it with what the form needs."""
    asked = client.post(url, {"action": action, "id": ids, **({"back": back} if back else {})}, follow=True)
    return confirm(client, asked, **data) if confirmed else asked


def act_on_group(client: Client, action: str, query: str, *, confirmed: str = "", **data: Any) -> Any:
    """Run an action on a group of errors, as the page of errors does."""
    sent = {"action": action, "all": "1", "q": query, "state": "failing", "back": ERRORS}
    asked = client.post(ACT, sent, follow=True)
    return confirm(client, asked, **data) if confirmed else asked


def act_on_all(
    client: Client, action: str, query: str = "", *, state: str = "", confirmed: str = "", **data: Any
) -> Any:
    """Run an action on all jobs of a list."""
    url = f"{JOBS}?{urlencode({name: value for name, value in (('q', query), ('state', state)) if value})}"
    asked = client.post(url, {"action": action, "select_across": "1", "index": "0"}, follow=True)
    return confirm(client, asked, **data) if confirmed else asked


def action_url(page: Any) -> str:
    """Return the URL of an action whose page is shown; "" if the action is over."""
    found: str = page.request["PATH_INFO"]
    return found if "/action/" in found else ""


def confirm(client: Client, asked: Any, **data: Any) -> Any:
    """Confirm an action, with the number of jobs if it is asked for."""
    url = action_url(asked)
    if not url or asked.status_code != 200:
        return asked
    typed = re.sub(r"\D", "", asked.context.get("typed_number") or "")
    return client.post(url, {"typed": typed, **data}, follow=True)


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
