"""``status``, ``tasks`` and ``events``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection

from django_graphile_worker import pause, resume
from django_graphile_worker.management.operator import status
from django_graphile_worker.sql import events
from django_graphile_worker.sql.events import ERROR, INFORMATION, NewEvent
from tests.support.factories import make_failed_job, make_job, make_task, minutes_ago
from tests.support.limits import make_key, park_job
from tests.support.operating import DEAD, LIVE, execute, make_statistics, make_worker, operate

pytestmark = pytest.mark.django_db


def test_status__tells_of_workers_with_different_timeouts() -> None:
    make_worker(LIVE)
    make_worker("django-worker-other")
    assert "worker timeouts" not in operate("status").out
    execute("update {schema}._private_workers set timeout_seconds = case id when %s then 60 else 6 end", [LIVE])
    assert re.search(r"worker timeouts +6 s, 60 s", operate("status").out)
    assert operate("status", "--json").json["workers"]["timeouts"] == [6.0, 60.0]


def test_status_and_workers__tell_of_workers_of_different_versions() -> None:
    make_worker(LIVE, version="1.10.0")
    make_worker("django-worker-second", version="1.10.0")
    make_worker(DEAD, version="1.8.4", beat=minutes_ago(2))
    make_worker("rust-worker", version=["no", "version"])
    assert "worker versions" not in operate("status").out
    assert operate("status", "--json").json["workers"]["versions"] == {"1.10.0": 2}
    execute("delete from {schema}._private_workers where id = %s", [DEAD])
    assert "VERSION" not in operate("workers").out
    make_worker("django-worker-old", version="1.9.3")
    assert re.search(r"worker versions +1\.9\.3 \(1 worker\), 1\.10\.0 \(2 workers\)", operate("status").out)
    assert list(operate("status", "--json").json["workers"]["versions"].items()) == [("1.9.3", 1), ("1.10.0", 2)]
    lines = operate("workers").out.splitlines()
    assert "VERSION" in lines[0]
    assert any("django-worker-old" in line and "1.9.3" in line for line in lines)


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
        "versions": {},
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


def _ailments(*arguments: str) -> str:
    try:
        operate("status", "--check", *arguments)
    except CommandError as error:
        return str(error)
    return ""


def test_check__fails_for_each_reason_and_passes_without_one() -> None:
    assert "0 workers alive instead of 1" in _ailments()
    assert _ailments("--min-workers", "0") == ""
    make_worker(LIVE)
    assert _ailments() == ""
    assert "1 worker alive instead of 2" in _ailments("--min-workers", "2")
    job_id = make_job("a", run_at=minutes_ago(6))
    assert f"unhealthy: a #{job_id} has been ready for 6 m, longer than 5m." in _ailments()
    assert _ailments("--max-age", "10m") == ""
    operate("fail", str(job_id))
    assert _ailments() == ""
    assert "1 permanently failed job, more than 0" in _ailments("--max-failed", "0")
    assert _ailments("--max-failed", "1") == ""
    make_worker(DEAD, beat=minutes_ago(2))
    assert _ailments() == ""
    make_job("a", locked_by=DEAD)
    assert "1 silent worker holds jobs" in _ailments()


def test_check__does_not_mistake_future_jobs_for_late_ones() -> None:
    make_worker(LIVE)
    make_job("a", run_at=datetime.now(UTC) + timedelta(days=400))
    assert _ailments() == ""


@pytest.mark.parametrize(
    ("paused", "columns"),
    [
        ({"task": "paused"}, {}),
        ({"queue": "mail"}, {"queue_name": "mail"}),
        ({"flag": "bulk"}, {"flags": {"bulk": True}}),
        ({"flag": "bulk"}, {"flags": {"bulk": True, "other": True}, "queue_name": "shop"}),
    ],
)
def test_check__does_not_mistake_paused_jobs_for_late_ones(paused: Any, columns: dict[str, Any]) -> None:
    make_worker(LIVE)
    job_id = make_job("paused", run_at=minutes_ago(60), **columns)
    assert f"paused #{job_id} has been ready for 1 h" in _ailments()
    pause(**paused)
    assert _ailments() == _ailments("--task", "paused") == ""
    assert operate("status", "--json").json["jobs"]["ready"]["count"] == 1
    assert re.search(r"^ready +1$", operate("status").out, re.MULTILINE)
    others = [
        make_job("other", run_at=minutes_ago(minutes), queue_name=queue_name, flags=flags, priority=minutes)
        for minutes, queue_name, flags in ((7, "shop", None), (8, None, {"fine": True}), (9, None, None))
    ]
    for job_id, minutes in zip(reversed(others), (9, 8, 7), strict=True):
        assert f"other #{job_id} has been ready for {minutes} m" in _ailments()
        execute("delete from {schema}._private_jobs where id = %s", [job_id])
    assert _ailments() == ""
    resume(**paused)
    assert "has been ready for 1 h" in _ailments()


def test_check__does_not_mistake_jobs_that_wait_for_a_limit_for_late_ones() -> None:
    make_worker(LIVE)
    park_job(make_key("account", "1"), "a", run_at=minutes_ago(60))
    assert _ailments() == ""
    pause(task="other", create=True)
    assert _ailments() == ""


def test_check__names_the_job_that_no_worker_can_run() -> None:
    make_worker(LIVE, tasks=["send_receipt"])
    job_id = make_job("send_recipt", run_at=minutes_ago(7))
    make_job("send_receipt", run_at=minutes_ago(6))
    problem = f"send_recipt #{job_id} has been ready for 7 m (no live worker has this task), longer than 5m"
    assert _ailments() == f"The queue is unhealthy: {problem}."
    assert "send_receipt #" in _ailments("--task", "send_receipt")
    assert _ailments("--task", "send_receipt", "--max-age", "10m") == ""


def test_check__of_a_task_that_nothing_knows_fails_with_the_name_that_was_meant() -> None:
    """It would find no job of that name, and report for ever that all is well."""
    make_worker(LIVE, tasks=["of_a_worker"])
    make_job("of_a_job")
    for known in ("of_a_worker", "of_a_job", "send_receipt"):
        operate("status", "--check", "--task", known)
    for typed, meant in (("of_a_workr", "of_a_worker"), ("of_a_jbo", "of_a_job"), ("send_recipt", "send_receipt")):
        expected = f"--task: neither a job nor a worker nor this project has a task '{typed}'. Did you mean '{meant}'"
        with pytest.raises(CommandError, match=expected):
            operate("status", "--check", "--task", "of_a_job", "--task", typed)


def test_check__of_a_task_of_this_project_passes_before_its_first_job() -> None:
    make_worker(LIVE)
    execute("delete from {schema}._private_tasks where identifier = 'send_receipt'")
    operate("status", "--check", "--task", "send_receipt")


def test_tasks__count_a_failed_job_that_is_due_again_as_ready_alone() -> None:
    make_job("a", attempts=1, run_at=minutes_ago(1))
    make_job("a", attempts=1, run_at=minutes_ago(-1))
    (told,) = [task for task in operate("tasks", "--json").json if task["task_identifier"] == "a"]
    assert (told["ready"], told["retrying"]) == (1, 1)


def test_tasks__tell_what_waits_who_has_it_and_how_it_went() -> None:
    make_worker(LIVE, tasks=["send_receipt", "resize_photo"])
    make_worker("django-worker-other", tasks=["send_receipt"])
    make_worker(DEAD, beat=minutes_ago(2), tasks=["send_receipt"])
    make_job("send_receipt", run_at=minutes_ago(3.5))
    make_job("typo", run_at=minutes_ago(-5), attempts=1)
    make_failed_job("send_receipt")
    make_task("forgotten")
    make_statistics("send_receipt", 2, succeeded=3, failed=1, run_microseconds=2_000_000)
    told = {task["task_identifier"]: task for task in operate("tasks", "--json").json}
    assert "forgotten" not in told
    assert told["typo"] | {"live_workers": 0, "retrying": 1, "is_in_this_project": False} == told["typo"]
    receipt = told["send_receipt"]
    assert (receipt["live_workers"], receipt["ready"], receipt["failed"]) == (2, 1, 1)
    assert (receipt["succeeded"], receipt["failures"], receipt["mean_seconds"]) == (3, 1, 0.5)
    assert told["resize_photo"]["is_in_this_project"]
    (line,) = [line for line in operate("tasks").out.splitlines() if line.startswith("send_receipt ")]
    assert line.split() == ["send_receipt", "2", "1", "4", "min", "0", "1", "3", "1", "500", "ms"]


@pytest.fixture
def logged(worker_schema: str) -> None:
    with connection.cursor() as cursor:
        for kind, subject, severity in (("worker_started", "web-1", INFORMATION), ("worker_lost", "web-2", ERROR)):
            details = {"silent_seconds": 62, "jobs": 7}
            event = NewEvent(kind=kind, subject=subject, severity=severity, details=details, worker_id=f"w-{subject}")
            events.add(cursor, event, schema=worker_schema)
    execute("update {schema}._private_events set last_at = last_at - interval '2 hours' where kind = 'worker_started'")


def kinds(*arguments: str) -> list[str]:
    return [row["kind"] for row in operate("events", *arguments, "--json").json]


def test_events__are_a_table_for_people(logged: None) -> None:
    lines = operate("events").out.split("\n")
    assert "error     worker_lost     Worker lost: web-2 (no heartbeat for 62 s). It held 7 jobs." in lines[1]
    assert "Worker started: web-1." in lines[2]


def test_options__select_events(logged: None) -> None:
    assert kinds() == ["worker_lost", "worker_started"]
    assert kinds("--problems") == kinds("--since", "1h") == kinds("--limit", "1") == ["worker_lost"]
    assert kinds("--kind", "workers") == ["worker_lost", "worker_started"]
    assert kinds("--kind", "worker_started") == kinds("--worker", "web-1") == ["worker_started"]
    assert kinds("--kind", "schedules") == []
    assert operate("events", "--kind", "schedules").err == "No events.\n"
    assert "There are more events" in operate("events", "--limit", "1").err


def test_json__has_the_text_and_the_details(logged: None) -> None:
    first = operate("events", "--json").json[0]
    assert first["text"] == "Worker lost: web-2 (no heartbeat for 62 s). It held 7 jobs."
    assert (first["details"]["jobs"], first["severity"], first["number"]) == (7, "error", 1)
