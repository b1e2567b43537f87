from __future__ import annotations

from typing import Any

from django_graphile_worker.signals import Event
from tests.support.log_lines import EVENTS


def test_the_signals_of_a_workers_life_are_there() -> None:
    assert set(EVENTS) == {
        "pre_add_jobs",
        "worker_started",
        "worker_stopping",
        "worker_stopped",
        "shutdown_failed",
        "worker_lost_lease",
        "schema_refused",
        "listening_starting",
        "listening_started",
        "listening_lost",
        "claim_started",
        "nothing_claimed",
        "jobs_claimed",
        "job_started",
        "job_succeeded",
        "job_failed",
        "job_permanently_failed",
        "job_expired",
        "job_interrupted",
        "work_paused",
        "work_resumed",
        "job_cancelled",
        "cancellation_missed",
        "job_released",
        "jobs_recovered",
        "stale_locks_released",
        "cron_started",
        "cron_scheduled",
        "cron_backfilled",
        "cron_missed",
        "schedule_tasks_not_found",
        "schedule_names_taken",
        "schedule_fired",
        "schedule_skipped",
        "schedule_missed",
        "database_trouble",
        "database_answered",
        "indexes_missed",
        "leftover_state_found",
        "results_refused",
        "claim_lost",
        "thread_left_behind",
        "tasks_unserved",
        "tasks_not_found",
    }


def _receive(**kwargs: Any) -> None: ...


def test_event__is_heard_when_it_has_a_receiver() -> None:
    event = Event("job")
    assert not event.is_heard()
    event.connect(_receive)
    assert event.is_heard()


def test_muted_event__is_heard_only_while_its_one_receiver_is_active() -> None:
    event = Event("job")
    event.connect(_receive, dispatch_uid="log")
    event.mute_unless("log", lambda *, wanted=True, **kwargs: wanted)
    assert event.is_heard()
    assert event.is_heard(wanted=True)
    assert not event.is_heard(wanted=False)


def test_muted_event__is_heard_when_another_receiver_is_connected() -> None:
    event = Event("job")
    event.connect(_receive, dispatch_uid="log")
    event.mute_unless("log", lambda **kwargs: False)
    event.connect(_receive, dispatch_uid="another")
    assert event.is_heard()
    event.disconnect(dispatch_uid="log")
    assert event.is_heard(), "the one receiver that is left is not the muted one"


def test_event__is_sent_without_a_lock() -> None:
    event, received = Event("job"), []

    def receive(**arguments: Any) -> None:
        received.append(arguments["job"])

    event.connect(receive)
    event.send_robust(Event, job=1)
    with event.lock:
        event.send_robust(Event, job=2)
    assert received == [1, 2]
