"""manage.py graphile_worker status: what it shows."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest
from django.core.management import CommandError

from django_graphile_worker.management.operator import status
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.limits import make_key, park_job
from tests.support.operating import DEAD, LIVE, execute, make_statistics, make_worker, operate

pytestmark = pytest.mark.django_db


def test_status__tells_of_workers_with_different_timeouts() -> None:
    make_worker(LIVE)
    make_worker("django-worker-other")
    assert "worker timeouts" not in operate("status").out
    execute("update {schema}._private_workers set timeout_seconds = case id when %s then 60 else 6 end", [LIVE])
    assert re.search(r"worker timeouts\W+6 s, 60 s", operate("status").out)
    assert operate("status", "--json").json["workers"]["timeouts"] == [6.0, 60.0]


def test_status__counts_every_state() -> None:
    make_job("a", run_at=minutes_ago(3))
    make_job("a", run_at=minutes_ago(1), priority=-5)
    make_job("a", run_at=minutes_ago(-5))
    make_job("a", run_at=minutes_ago(-5), attempts=1)
    make_job("a", locked_by=LIVE)
    make_failed_job("a")
    make_worker(LIVE, is_listening=True)
    make_worker(DEAD, beat=minutes_ago(2))
    told = operate("status", "--json").json
    counts = {state: count["count"] for state, count in told["jobs"].items()}
    assert counts == {"ready": 2, "limited": 0, "scheduled": 1, "running": 1, "retrying": 1, "failed": 1}
    assert told["oldest_ready_seconds"] == pytest.approx(180, abs=10)
    assert told["workers"] == {
        "alive": 1,
        "stopping": 0,
        "silent": 1,
        "unregistered": 0,
        "listening": 1,
        "timeouts": [60.0],
    }
    shown = operate("status").out
    assert "ready               2, the oldest for 3 m" in shown
    assert "permanently failed  1" in shown


def test_status__counts_up_to_a_cap_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "CAP", 2)
    for _ in range(4):
        make_job("a")
    assert operate("status", "--json").json["jobs"]["ready"] == {
        "count": 2,
        "is_capped": True,
        "earliest": operate("jobs", "--json").json[-1]["run_at"],
    }
    assert "2+" in operate("status").out


def test_status__tells_the_next_scheduled_job_behind_jobs_that_are_retried_sooner() -> None:
    for _ in range(30):
        make_job("a", run_at=minutes_ago(-5), attempts=1, last_error="no")
    make_job("a", run_at=minutes_ago(-60))
    assert ", the next " in operate("status").out


def test_status__tells_the_earliest_time_of_each_state() -> None:
    times = {minutes: minutes_ago(minutes) for minutes in (-60, -5, 5, 60)}
    for when in times.values():
        make_job("a", run_at=when, priority=-int(when.timestamp()) % 3)
        make_job("a", run_at=when, attempts=1)
        make_job("a", locked_by="worker-1", locked_at=when)
        make_failed_job("a", updated_at=when, run_at=times[5])
    park_job(make_key("a", "a"), "a", run_at=times[60])
    told = {state: about["earliest"] for state, about in operate("status", "--json").json["jobs"].items()}
    expected = {"ready": 60, "limited": 60, "scheduled": -5, "running": 60, "retrying": -5, "failed": 60}
    assert {state: datetime.fromisoformat(told[state]) for state in told} == {
        state: times[minutes] for state, minutes in expected.items()
    }


def test_status__tells_tasks_that_jobs_wait_for_and_no_live_worker_has() -> None:
    make_worker(LIVE, tasks=["send_receipt"])
    make_worker(DEAD, beat=minutes_ago(2), tasks=["lost"])
    make_job("send_receipt")
    mistyped = make_job("send_recipt")
    lost = make_job("lost", queue_name="q", run_at=minutes_ago(-60))
    make_failed_job("given_up")
    told = operate("status", "--json").json["tasks_without_worker"]
    assert told == [{"identifier": "send_recipt", "job_id": mistyped}, {"identifier": "lost", "job_id": lost}]
    expected = f"unserved tasks      send_recipt (#{mistyped} waits for it), lost (#{lost} waits for it)"
    assert expected in operate("status").out


@pytest.mark.parametrize("metadata", [None, {}, {"tasks": "all"}])
def test_status__does_not_guess_what_a_worker_has_that_does_not_say(metadata: dict[str, Any] | None) -> None:
    make_job("a")
    if metadata is not None:
        make_worker(LIVE, tasks=["b"])
        make_worker("django-worker-other", **metadata)
    assert operate("status", "--json").json["tasks_without_worker"] == []


def test_status__tells_what_was_done_lately() -> None:
    make_statistics("a", 2, succeeded=50, failed=2, permanently_failed=1)
    make_statistics("a", 9, succeeded=1000)
    assert operate("status", "--json").json["recent"] == {"minutes": 5, "succeeded": 50, "failed": 3, "expired": 0}
    assert "last 5 minutes      50 succeeded (10 a minute), 3 failed" in operate("status").out
    assert operate("status", "--json", "--task", "b").json["recent"]["succeeded"] == 0


def test_status__tells_how_many_jobs_expired() -> None:
    make_statistics("a", 2, succeeded=50, expired=3)
    make_statistics("c", 2, expired=3)
    make_statistics("a", 9, expired=3)
    assert operate("status", "--json").json["recent"]["expired"] == 6
    assert "last 5 minutes      50 succeeded (10 a minute), 6 expired" in operate("status").out
    assert operate("status", "--json", "--task", "a").json["recent"]["expired"] == 3
    assert operate("status", "--json", "--task", "b").json["recent"]["expired"] == 0


def test_status__of_a_task_counts_its_jobs_alone() -> None:
    for task in ("a", "b", "b"):
        make_job(task, run_at=minutes_ago(2))
        make_failed_job(task)
    told = operate("status", "--json", "--task", "a").json
    assert (told["jobs"]["ready"]["count"], told["jobs"]["failed"]["count"]) == (1, 1)
    assert told["oldest_ready_job"]["task_identifier"] == "a"


def test_status__of_a_task_names_no_other_task_without_a_worker() -> None:
    make_worker(LIVE, tasks=["send_receipt"])
    make_job("send_recipt")
    make_job("lost")
    told = operate("status", "--json", "--task", "lost").json["tasks_without_worker"]
    assert [task["identifier"] for task in told] == ["lost"]


def test_status__of_a_mistyped_task_suggests_the_right_one() -> None:
    make_job("send_receipt")
    said = operate("status", "--task", "send_recipt")
    assert said.err == "No job has the task 'send_recipt'. Did you mean 'send_receipt'?\n"


def test_watch__shows_the_queue_until_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        make_job("a")
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(status, "pause", pause)
    lines = [line for line in operate("status", "--watch", "0.5").out.splitlines() if line.startswith("ready")]
    assert [line.split()[1].strip(",") for line in lines] == ["0", "1", "2"]
    assert pauses == [0.5] * 3


@pytest.mark.parametrize("other", ["--check", "--json"])
def test_watch__is_for_people(other: str) -> None:
    with pytest.raises(CommandError, match=r"^--watch cannot be used with"):
        operate("status", "--watch", other)
