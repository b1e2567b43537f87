"""Where the fetcher waits, on a real database."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from django_graphile_worker import add_job
from django_graphile_worker.worker.database import connection as connection_module
from django_graphile_worker.worker.database.watchdog import Watchdog
from django_graphile_worker.worker.database_worker import DatabaseWorker
from django_graphile_worker.worker.fetching.listener import Listener, announces_jobs
from django_graphile_worker.worker.outcomes import Interrupted
from django_graphile_worker.worker.runner import never
from tests.conftest import WAIT_TIMEOUT
from tests.support.factories import make_job
from tests.support.operating import execute
from tests.support.stepped_worker import Build

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]


@pytest.fixture
def stepped(runner: Build) -> DatabaseWorker:
    return runner()


@pytest.fixture
def listener(stepped: DatabaseWorker) -> Listener:
    assert stepped.listener is not None
    return stepped.listener


def test_looks_once_for_what_came_before_it_listened(listener: Listener) -> None:
    assert listener.wait(WAIT_TIMEOUT, unless=never)
    assert not listener.wait(0, unless=never)


def test_hears_of_jobs_and_proves_itself(stepped: DatabaseWorker, listener: Listener) -> None:
    listener.wait(0, unless=never)
    assert not listener.wait(0.01, unless=never)
    assert stepped.heartbeat.was_woken()
    assert not listener.is_healthy
    stepped.heartbeat.step()
    add_job("quick")
    assert listener.wait(WAIT_TIMEOUT, unless=never)
    assert listener.is_healthy


def test_worker_that_waits_for_its_first_proof_does_not_say_that_it_polls(
    stepped: DatabaseWorker, listener: Listener
) -> None:
    """The overview would report it for ten seconds after each start."""
    stated = "select metadata ->> 'is_listening' from {schema}._private_workers"
    listener.wait(0, unless=never)
    listener.wait(0.01, unless=never)
    stepped.heartbeat.step()
    assert execute(stated) == [(None,)]
    add_job("quick")
    assert listener.wait(WAIT_TIMEOUT, unless=never)
    stepped.heartbeat.step()
    assert execute(stated) == [("true",)]


def test_a_worker_that_only_polls_by_choice__says_so(runner: Build, stepped: DatabaseWorker) -> None:
    assert stepped.metadata()["listens"]
    quiet = runner(listen=False).metadata()
    assert not quiet["listens"]
    assert not quiet["is_listening"]


def test_what_arrives_during_a_claim_is_not_lost(stepped: DatabaseWorker, listener: Listener) -> None:
    listener.wait(0, unless=never)
    add_job("quick", run_at=timedelta(seconds=9))
    assert not stepped.claimer.claim(max_jobs=1, max_per_queue=1).claims
    assert listener.wait(WAIT_TIMEOUT, unless=never)


def test_a_queue_that_this_worker_releases_is_news_for_other_workers_only(
    runner: Build, stepped: DatabaseWorker, listener: Listener, wait_until: Wait
) -> None:
    """The worker claims the next job of the queue at once. One more claim, for its own notification, finds nothing."""
    other = runner().listener
    assert other is not None
    for each in (listener, other):
        assert each.wait(WAIT_TIMEOUT, unless=never)
        assert not each.wait(0.01, unless=never)
    for _ in range(2):
        make_job("quick", queue_name="q")
    stepped.fetcher.step()
    wait_until(lambda: stepped.pool.is_idle)
    stepped.fetcher.forget_wake()
    assert stepped.claimer.claim(max_jobs=1, max_per_queue=1).claims == []
    stepped.releaser.step()
    assert stepped.fetcher.was_woken()
    assert other.wait(WAIT_TIMEOUT, unless=never)
    assert not listener.wait(0.2, unless=never)
    add_job("quick")
    assert listener.wait(WAIT_TIMEOUT, unless=never)


@pytest.mark.parametrize("notify", [True, False])
def test_jobs_that_a_worker_returns_are_news_for_other_workers(runner: Build, listener: Listener, notify: bool) -> None:
    """It may have no free slot, or may be about to stop."""
    assert listener.wait(WAIT_TIMEOUT, unless=never)
    assert not listener.wait(0.01, unless=never)
    other = runner(notify=notify)
    make_job("quick")
    claimed = other.claimer.claim(max_jobs=1, max_per_queue=1).claims
    other.releaser.return_jobs([Interrupted(claim, 0.0, has_begun=False) for claim in claimed], [])
    other.releaser.step()
    assert other.fetcher.was_woken()
    assert listener.wait(WAIT_TIMEOUT if notify else 0.2, unless=never) is notify


@pytest.mark.parametrize(("channel", "part"), [("worker:migrate", "recovery"), ("jobs:control", "heartbeat")])
def test_notifications_without_end__are_answered_at_an_interval(
    runner: Build,
    channel: str,
    part: str,
    raw_connection: Callable[..., psycopg.Connection[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A role that may only connect can send them. What was announced last is answered as well, without another."""
    now = [0.0]
    stepped = runner()
    listener, woken = stepped.listener, getattr(stepped, part)
    assert listener is not None
    monkeypatch.setattr(listener, "_clock", lambda: now[0])
    listener.wait(0, unless=never)
    session, answers = raw_connection(), []

    def is_answered() -> bool:
        listener._read_notifications()
        woken.forget_wake()
        session.execute(f"notify \"{channel}\", '{stepped.settings.schema}'".encode())
        listener._wakeup.wait(WAIT_TIMEOUT, unless=never)
        listener._read_notifications()
        return bool(woken.was_woken())

    for _ in range(20):
        answers.append(is_answered())
        now[0] += 0.001
    assert answers == [True] + [False] * 19
    now[0] += 1.0
    listener._read_notifications()
    assert woken.was_woken()
    woken.forget_wake()
    now[0] += 1.0
    listener._read_notifications()
    assert not woken.was_woken()


def test_a_call_ends_the_wait(listener: Listener, wait_until: Wait) -> None:
    listener.wait(0, unless=never)
    has_news = []
    waiting = threading.Thread(target=lambda: has_news.append(listener.wait(WAIT_TIMEOUT, unless=never)))
    waiting.start()
    wait_until(lambda: listener._wakeup._is_waiting)
    listener.interrupt()
    waiting.join(WAIT_TIMEOUT)
    assert has_news == [False]


def test_a_call_before_the_wait_counts(listener: Listener) -> None:
    listener.wait(0, unless=never)
    assert not listener.wait(60, unless=lambda: True)


@pytest.mark.parametrize("notify", [True, False])
def test_a_connection_that_is_cut_after_it_began_to_listen_is_not_used(
    runner: Build, monkeypatch: pytest.MonkeyPatch, notify: bool
) -> None:
    """The next connection would listen to nothing. Without proofs nobody would ever notice."""
    now = [0.0]

    class Cutting(Watchdog):
        cuts = False

        def end(self, token: int) -> None:
            if self.cuts:
                self.cuts, now[0] = False, now[0] + 1000.0
                self.check_deadlines()
                self.check_deadlines()
            super().end(token)

    watchdog = Cutting(clock=lambda: now[0])
    monkeypatch.setattr(connection_module, "watchdog", watchdog)
    worker = runner(notify=notify)
    worker.claim_database.connection()
    watchdog.cuts = True
    listener = worker.listener
    assert listener is not None
    listener.wait(0, unless=never)
    assert not watchdog.cuts
    assert not listener._is_listening
    listener._try_again_at = -math.inf
    assert listener.wait(WAIT_TIMEOUT, unless=never)
    add_job("quick")
    assert listener.wait(WAIT_TIMEOUT, unless=never)


def test_silence_is_a_loss(stepped: DatabaseWorker, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    lost: list[Exception] = []
    listener._clock = lambda: now[0]
    monkeypatch.setattr(stepped.reports, "listening_lost", lambda error, delay: lost.append(error))
    listener.wait(0, unless=never)
    listener.is_healthy = True
    listener._silence = 24.99

    def wait(seconds: float, *, unless: Any) -> bool:
        now[0] += seconds
        return False

    monkeypatch.setattr(listener._wakeup, "wait", wait)
    listener.wait(1, unless=never)
    assert not listener.is_healthy
    assert "heard none" in str(lost[0])
    # It tries again when it said it would, and polls until then.
    assert not listener.wait(0, unless=never)
    now[0] += 1
    assert listener.wait(0, unless=never)
    # A pooler accepts LISTEN every time.
    assert listener.is_heard is False


def test_a_process_that_did_not_run_asks_for_proof_instead_of_blaming_a_pooler(
    stepped: DatabaseWorker, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suspended laptop, a virtual machine that was paused, SIGSTOP: its heartbeat slept as well."""
    now, pauses = [0.0], [3600.0]
    lost: list[Exception] = []
    listener._clock = lambda: now[0]
    monkeypatch.setattr(stepped.reports, "listening_lost", lambda error, delay: lost.append(error))
    listener.wait(0, unless=never)
    listener.is_healthy = True
    listener._must_ask = False

    def wait(seconds: float, *, unless: Any) -> bool:
        now[0] += seconds + (pauses.pop() if pauses else 0.0)
        return False

    monkeypatch.setattr(listener._wakeup, "wait", wait)
    listener.wait(1, unless=never)
    assert lost == []
    assert not stepped.heartbeat.was_woken()
    listener.wait(1, unless=never)
    assert stepped.heartbeat.was_woken()
    # Silence after that is silence.
    listener.wait(30, unless=never)
    assert "heard none" in str(lost[0])


@pytest.mark.parametrize(
    ("payload", "is_about_jobs"),
    [('{"r":0.1,"count":2}', True), ('{"count":-1}', False), ('{"count":0}', False), ("", True), ("[]", True)],
)
def test_understands_the_original_s_payloads(payload: str, is_about_jobs: bool) -> None:
    assert announces_jobs(payload) is is_about_jobs
