from __future__ import annotations

from typing import Any

from django_graphile_worker.signals import NamedSignal
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


def test_signal__is_heard_when_it_has_a_receiver() -> None:
    signal = NamedSignal("job")
    assert not signal.is_heard()
    signal.connect(_receive)
    assert signal.is_heard()


def test_muted_signal__is_heard_only_while_its_one_receiver_is_active() -> None:
    signal = NamedSignal("job")
    signal.connect(_receive, dispatch_uid="log")
    signal.mute_unless("log", lambda *, wanted=True, **kwargs: wanted)
    assert signal.is_heard()
    assert signal.is_heard(wanted=True)
    assert not signal.is_heard(wanted=False)


def test_muted_signal__is_heard_when_another_receiver_is_connected() -> None:
    signal = NamedSignal("job")
    signal.connect(_receive, dispatch_uid="log")
    signal.mute_unless("log", lambda **kwargs: False)
    signal.connect(_receive, dispatch_uid="another")
    assert signal.is_heard()
    signal.disconnect(dispatch_uid="log")
    assert signal.is_heard(), "the one receiver that is left is not the muted one"


def test_signal__is_sent_without_a_lock() -> None:
    signal, received = NamedSignal("job"), []

    def receive(**arguments: Any) -> None:
        received.append(arguments["job"])

    signal.connect(receive)
    signal.send_robust(NamedSignal, job=1)
    with signal.lock:
        signal.send_robust(NamedSignal, job=2)
    assert received == [1, 2]
