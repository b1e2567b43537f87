from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction

from django_graphile_worker import (
    InvalidJobError,
    InvalidTypeError,
    UnknownQueueError,
    UnknownTaskError,
    add_job,
    cleanup,
    models,
    pause,
    pauses,
    resume,
    signals,
)
from django_graphile_worker.testing import clock, run_jobs
from tests.support.factories import make_job, make_queue, make_task

pytestmark = pytest.mark.django_db

NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def heard() -> Any:
    """The signals that were sent, in order."""
    found: list[Any] = []

    def receiver(signal: Any, **arguments: Any) -> None:
        name = "paused" if signal is signals.work_paused else "resumed"
        found.append((name, arguments["kind"], arguments["name"], arguments["by"]))

    for signal in (signals.work_paused, signals.work_resumed):
        signal.connect(receiver)
    yield found
    for signal in (signals.work_paused, signals.work_resumed):
        signal.disconnect(receiver)


def test_pause__returns_the_pause_and_lists_it() -> None:
    make_queue("mail")
    until = datetime(2099, 1, 1, tzinfo=UTC)
    paused = pause(queue="mail", until=until, reason="provider", by="ann")
    assert (paused.kind, paused.name, paused.until, paused.reason, paused.by) == (
        "queue",
        "mail",
        until,
        "provider",
        "ann",
    )
    assert pauses() == [paused]
    assert resume(queue="mail") == paused
    assert pauses() == []


def test_resume_of_what_is_not_paused__is_no_error() -> None:
    assert resume(queue="mail") is None
    assert resume(task="anything") is None


def test_pauses__end_by_their_time() -> None:
    with clock(NEW_YEAR) as now:
        pause(flag="bulk", until=timedelta(hours=1))
        pause(flag="other")
        now.advance(hours=2)
        assert [paused.name for paused in pauses()] == ["other"]


def test_rolled_back_pause__never_was(heard: list[Any], django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True), pytest.raises(ValueError, match="no"), transaction.atomic():
        pause(flag="bulk")
        raise ValueError("no")
    assert pauses() == []
    assert heard == []


def test_signals__are_sent_at_the_commit(heard: list[Any], django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        pause(flag="bulk", by="ann")
        resume(flag="bulk", by="bob")
        resume(flag="bulk")
        assert heard == []
    assert heard == [("paused", "flag", "bulk", "ann"), ("resumed", "flag", "bulk", "bob")]


def test_unknown_queue_and_task__are_refused_with_close_names() -> None:
    make_queue("mail")
    make_task("send_receipt")
    with pytest.raises(UnknownQueueError, match=r"no queue 'mall'\. Did you mean 'mail'\? .*create=True"):
        pause(queue="mall")
    with pytest.raises(UnknownTaskError, match=r"no task 'send_recept'\. Did you mean 'send_receipt'\?"):
        pause(task="send_recept")
    assert pauses() == []
    assert not models.JobQueue.objects.filter(queue_name="mall").exists()


def test_unknown_queue__can_be_paused_before_its_first_job() -> None:
    pause(queue="mall", create=True)
    add_job("send", queue_name="mall")
    assert not models.JobQueue.objects.get(queue_name="mall").is_available


def test_task_object__is_paused_by_its_identifier() -> None:
    class Task:
        identifier = "send"

    make_task("send")
    assert pause(task=Task()).name == "send"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Expected one of queue=, task= and flag=, got none of them"),
        ({"queue": "a", "flag": "b"}, "got queue='a' and flag='b'"),
        ({"queue": ""}, "queue_name: expected 1 to 128 characters"),
        ({"flag": "f" * 600}, "flag: expected 1 to 512 characters"),
        ({"task": 5}, "identifier: expected a string, got 5"),
        ({"flag": "a", "until": "tomorrow"}, "until: expected an aware datetime"),
        ({"flag": "a", "until": timedelta(0)}, "until: expected a time in the future"),
        ({"flag": "a", "until": datetime(2000, 1, 1, tzinfo=UTC)}, "until: expected a time in the future"),
        ({"flag": "a", "reason": None}, "reason: expected a string"),
    ],
)
def test_bad_arguments__are_refused_before_any_statement(
    arguments: dict[str, Any], message: str, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(0), pytest.raises((InvalidTypeError, InvalidJobError)) as caught:
        pause(**arguments)
    assert message in str(caught.value)


def test_cleanup__keeps_a_paused_queue_without_jobs() -> None:
    make_queue("mail")
    make_queue("other")
    pause(queue="mail")
    assert cleanup().queues == 1
    assert models.JobQueue.objects.get().queue_name == "mail"


class TestRunJobs:
    """``run_jobs()`` of a test obeys pauses, too."""

    def test_jobs_of_what_is_paused_do_not_run(self) -> None:
        make_job("send_receipt")
        make_job("ask_for_review", flags={"bulk": True})
        make_job("ask_for_review", queue_name="mail")
        pause(task="send_receipt")
        pause(flag="bulk")
        pause(queue="mail")
        assert run_jobs() == []
        resume(task="send_receipt")
        assert [ran.task_identifier for ran in run_jobs()] == ["send_receipt"]
        resume(flag="bulk")
        resume(queue="mail")
        assert len(run_jobs()) == 2

    def test_pauses_end_by_the_clock_of_the_test(self) -> None:
        with clock(NEW_YEAR) as now:
            add_job("send_receipt")
            add_job("send_receipt", queue_name="mail")
            pause(task="send_receipt", until=timedelta(hours=1))
            pause(queue="mail", until=timedelta(hours=2))
            assert run_jobs(cron=False) == []
            now.advance(hours=1, minutes=1)
            assert len(run_jobs(cron=False)) == 1
            now.advance(hours=1)
            assert len(run_jobs(cron=False)) == 1

    def test_job_that_waited_too_long_behind_a_pause_expires(self) -> None:
        with clock(NEW_YEAR) as now:
            add_job("send_receipt", expires=timedelta(minutes=30))
            pause(task="send_receipt", until=timedelta(hours=1))
            now.advance(hours=2)
            assert [ran.outcome for ran in run_jobs(cron=False)] == ["expired"]
            assert not models.Job.objects.exists()
