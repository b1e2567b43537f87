"""Each action on jobs means the same in the admin, in the API and in the operator command."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError
from django.test import Client
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from django_graphile_worker import (
    cancel_jobs,
    complete_jobs,
    permanently_fail_jobs,
    reschedule_jobs,
    retry_jobs,
    run_next,
    run_now,
)
from tests.support import admin_pages as pages
from tests.support.factories import make_failed_job, make_job, minutes_ago, unique
from tests.support.limits import make_key, park_job
from tests.support.operating import execute, operate

pytestmark = pytest.mark.django_db

OURS = "django-worker-0123456789abcdef01/7"
AT = "2090-01-02T09:00:00"


def through_api(action: str, ids: list[int]) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "run_now": lambda: run_now(ids),
        "run_next": lambda: run_next(ids),
        "retry": lambda: retry_jobs(ids),
        "edit": lambda: retry_jobs(ids, payload={"order": 2}),
        "reschedule": lambda: reschedule_jobs(ids, run_at=_time(), priority=4),
        "priority": lambda: reschedule_jobs(ids, priority=4),
        "fail": lambda: permanently_fail_jobs(ids, "Closed."),
        "delete": lambda: complete_jobs(ids),
        "cancel": lambda: cancel_jobs(ids, reason="Closed.", by="root"),
    }
    calls[action]()


def _time() -> Any:
    found = parse_datetime(AT)
    assert found is not None
    return timezone.make_aware(found)


def through_command(action: str, ids: list[int]) -> None:
    calls = {
        "run_now": ["run-now"],
        "run_next": ["run-next"],
        "retry": ["retry"],
        "edit": ["retry", "--payload", json.dumps({"order": 2})],
        "reschedule": ["reschedule", "--run-at", AT, "--priority", "4"],
        "priority": ["reschedule", "--priority", "4"],
        "fail": ["fail", "--reason", "Closed."],
        "delete": ["delete"],
        "cancel": ["cancel", "--reason", "Closed.", "--by", "root"],
    }
    verb, *options = calls[action]
    if action == "cancel":
        operate(verb, *map(str, ids), *options)
        return
    with pytest.raises(CommandError, match=r"^[1-9] of 8 jobs w(as|ere) not changed"):
        operate(verb, *map(str, ids), *options)


def through_admin(action: str, ids: list[int]) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    if action == "edit":
        for each in ids:
            page = client.get(f"{pages.JOBS}{each}/edit/")
            if page.status_code == 200:
                fields = {"payload": json.dumps({"order": 2}), "revision": page.context["form"].initial["revision"]}
                client.post(f"{pages.JOBS}{each}/edit/", fields)
        return
    given = {
        "reschedule": {"run_at": AT, "priority": "4"},
        "priority": {"priority": "4"},
        "fail": {"reason": "Closed."},
        "cancel": {"reason": "Closed."},
    }.get(action, {})
    name = "reschedule" if action == "priority" else action
    pages.act(client, name, *ids, confirmed="1", **given)


def make_jobs() -> list[int]:
    """Create a job in each state, and others that stay as they are."""
    make_job("other", priority=-2)
    key = make_key("limit", unique("key"))
    return [
        make_job("send", {"n": 1}, run_at=minutes_ago(5), queue_name="eu"),
        make_job("send", {"n": 2}, run_at=minutes_ago(-60), queue_name="eu"),
        make_job("send", {"n": 3}, run_at=minutes_ago(-60), attempts=2, last_error="KeyError: x\n\nframes"),
        make_job("send", {"n": 4}, run_at=minutes_ago(5), attempts=2, last_error="KeyError: x"),
        make_failed_job("send", payload={"n": 5}, run_at=minutes_ago(-60)),
        make_failed_job("send", payload={"n": 6}, run_at=minutes_ago(60), max_attempts=3, attempts=3),
        make_job("send", {"n": 7}, attempts=1, locked_by=OURS),
        park_job(key, "send", payload={"n": 8}, run_at=minutes_ago(5)),
    ]


# Each job in its place, without its id and with its times relative to now.
ROWS = """
    select row_number() over (order by id), payload::text, priority, attempts, max_attempts, last_error, revision, key,
        locked_by, is_available, case
            when run_at = 'infinity' then 'parked' when run_at = now() then 'now' when run_at < now() then
            'due since ' || round(extract(epoch from now() - run_at) / 60) else
            'in ' || round(extract(epoch from run_at - now()) / 60) end,
        (select count(*) from {schema}._private_stop_requests as request where request.job_id = jobs.id)
    from {schema}._private_jobs as jobs order by id"""

WAYS = {"admin": through_admin, "api": through_api, "command": through_command}


@pytest.mark.parametrize(
    "action", ["run_now", "run_next", "retry", "edit", "reschedule", "priority", "fail", "delete", "cancel"]
)
def test_action__changes_the_same_rows_in_the_admin_the_api_and_the_command(action: str) -> None:
    results = {}
    for name, way in WAYS.items():
        execute("delete from {schema}._private_jobs")
        execute("delete from {schema}._private_limited_jobs")
        User.objects.all().delete()
        ids = make_jobs()
        before = execute(ROWS)
        way(action, ids)
        results[name] = execute(ROWS)
        assert results[name] != before
    assert results["admin"] == results["api"] == results["command"]
