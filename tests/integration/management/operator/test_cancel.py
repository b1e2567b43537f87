"""manage.py graphile_worker cancel."""

from __future__ import annotations

import getpass
import json
from typing import Any

import pytest
from django.core.management import CommandError

from tests.support.factories import make_failed_job, make_job
from tests.support.operating import job_row, operate
from tests.support.rows import in_quotes, query

pytestmark = pytest.mark.django_db

OURS = "django-worker-0123456789abcdef01/7"


def who_and_why(schema: str) -> list[Any]:
    return query(f"select job_id, requested_by, reason from {in_quotes(schema)}._private_stop_requests order by job_id")


def test_cancel__says_what_became_of_each_job(worker_schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "maria")
    waiting, keyed = make_job("a"), make_job("a", key="k")
    running, node = make_job("a", locked_by=OURS, attempts=1), make_job("a", locked_by="node", attempts=1)
    failed = make_failed_job("a")
    ids = [str(each) for each in (waiting, running, node, failed, 777_777)]
    told = operate("cancel", *ids, "--key", "k", "--key", "missing", "--reason", "sent twice")
    assert told.out.splitlines() == [
        f"Removed 2 jobs (#{waiting}, #{keyed}).",
        f"Stopping 1 job (#{running}): the workers are told.",
    ]
    assert told.err.splitlines() == [
        f"A worker of Node.js runs 1 job (#{node}), and cannot be told to stop. If it fails, it is not retried.",
        f"Not cancelled, because it has ended: 1 job (#{failed}).",
        "Not cancelled, because there is no such job, or no more: 1 job (#777777).",
        "No job has the key 'missing'.",
    ]
    assert job_row(waiting, "id") is None
    assert who_and_why(worker_schema) == [(running, "maria", "sent twice"), (node, "maria", "sent twice")]


def test_cancel__takes_another_name(worker_schema: str) -> None:
    running = make_job("a", locked_by=OURS, attempts=1)
    operate("cancel", f"#{running}", "--by", "night shift")
    assert who_and_why(worker_schema) == [(running, "night shift", "")]


def test_cancel__works_for_a_user_without_a_name(worker_schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 1000")

    monkeypatch.setattr(getpass, "getuser", unknown)
    running = make_job("a", locked_by=OURS, attempts=1)
    operate("cancel", str(running))
    assert who_and_why(worker_schema) == [(running, "", "")]


def test_cancel__as_json() -> None:
    waiting = make_job("a")
    told = json.loads(operate("cancel", str(waiting), "--key", "missing", "--json").out)
    assert told == {
        "removed": [waiting],
        "stopping": [],
        "unstoppable": [],
        "ended": [],
        "unknown": [],
        "keys_without_job": ["missing"],
    }


def test_cancel__needs_something_to_cancel() -> None:
    with pytest.raises(CommandError, match=r"^Ids of jobs or --key are required\.$"):
        operate("cancel")
