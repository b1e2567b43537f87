"""The parts of a worker, stepped one by one on a real database."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from django_graphile_worker import add_job
from django_graphile_worker.models import Job
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.database.watchdog import Watchdog
from django_graphile_worker.worker.fetching import fetcher as fetching
from django_graphile_worker.worker.fetching import prefetch
from django_graphile_worker.worker.fetching.listener import Listener, announces_jobs
from django_graphile_worker.worker.parts import Parts
from django_graphile_worker.worker.runner import never
from tests.conftest import PATIENCE
from tests.support.factories import make_job, minutes_ago
from tests.support.stepped_worker import Build, Gate, run_all, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]

OTHER = "django-worker-other/1"

ran: list[Any] = []


def quick(payload: Any) -> None:
    ran.append(payload.get("n"))


def failing(payload: Any) -> None:
    raise ValueError("It does not work")


gate = Gate()


def slow(payload: Any) -> None:
    gate(payload)


@pytest.fixture
def runner() -> Iterator[Build]:
    ran.clear()
    gate.__init__()  # type: ignore[misc]
    with stepped_workers(quick, failing, slow) as make:
        yield make
        gate.may_end.set()


class TestFetcher:
    def test_claims_no_more_than_the_slots_before_it_knows_how_long_jobs_take(self, runner: Build) -> None:
        for _ in range(10):
            make_job("slow")
        worker = runner(concurrency=3)
        assert worker.fetcher.step() == 0.0
        assert Job.objects.filter(locked_by=worker.worker_id).count() == 3

    def test_claims_ahead_once_jobs_turn_out_short(self, runner: Build, wait_until: Wait) -> None:
        for number in range(300):
            make_job("quick", {"n": number})
        worker = runner(concurrency=2, local_queue_size=50)
        worker.fetcher.step()
        wait_until(lambda: worker.slots.is_idle)
        worker.fetcher.step()
        assert worker.fetcher._pace.ahead(50) > 0
        run_all(worker, wait_until)
        assert sorted(ran) == list(range(300))
        assert not Job.objects.exists()

    def test_never_claims_ahead_of_long_jobs(self, runner: Build) -> None:
        worker = runner()
        worker.slots._finished[0], worker.slots._busy_seconds[0] = 10, 10.0
        assert worker.fetcher._pace.ahead(1000) == 0
        assert worker.fetcher._pace.stretch(1000) == 1

    def test_large_payloads_are_not_hoarded(self, runner: Build) -> None:
        worker = runner()
        worker.slots._finished[0], worker.slots._busy_seconds[0] = 1000, 0.01
        worker.fetcher._pace._size = prefetch.BYTES_AHEAD // 10
        assert worker.fetcher._pace.ahead(1000) == 10

    @pytest.mark.parametrize("queue_name", [None, "q"])
    def test_large_payloads_behind_small_ones_are_not_hoarded(
        self, runner: Build, wait_until: Wait, monkeypatch: pytest.MonkeyPatch, queue_name: str | None
    ) -> None:
        monkeypatch.setattr(prefetch, "BYTES_AHEAD", 20_000)
        worker = runner(concurrency=2, local_queue_size=500)
        for number in range(10):
            make_job("quick", {"n": number})
        run_all(worker, wait_until)
        assert worker.fetcher._pace.ahead(500) > 100
        assert worker.fetcher._pace.stretch(500) > 100
        for _ in range(40):
            make_job("slow", {"x": "y" * 4000}, queue_name=queue_name)
        worker.fetcher.step()
        assert 0 < worker.slots.waiting_size <= 20_000 + 2 * 5000
        held = Job.objects.filter(locked_by__startswith=worker.worker_id).count()
        assert held <= 4 + 2

    def test_resumes_behind_the_last_job_without_a_queue(self, runner: Build) -> None:
        """Where the claimed jobs of a queue end says nothing of the jobs without one."""
        worker = runner()
        queued = [make_job("quick", queue_name="q", run_at=minutes_ago(minute)) for minute in (60, 20)]
        plain = [make_job("quick", run_at=minutes_ago(minute)) for minute in (50, 40, 30)]
        other = make_job("quick", flags={"f": True}, run_at=minutes_ago(30))
        claimed = worker.claimer(max_jobs=3, max_queues=3, stretch=3)
        assert [claim.id for claim in claimed.claims] == [queued[0], *plain[:2]]
        assert claimed.has_more
        resume_after = worker.claimer._resume_after()
        assert resume_after is not None
        assert resume_after.id == plain[1]
        claimed = worker.claimer(max_jobs=4, max_queues=4, stretch=3)
        assert [claim.id for claim in claimed.claims] == [plain[2], other]

    def test_resumes_nowhere_behind_the_last_job_of_a_queue(self, runner: Build) -> None:
        worker = runner()
        first, second = (make_job("quick", queue_name="q", run_at=minutes_ago(minute)) for minute in (60, 1))
        claimed = worker.claimer(max_jobs=2, max_queues=2, stretch=2)
        assert [claim.id for claim in claimed.claims] == [first, second]
        older = make_job("quick", run_at=minutes_ago(30))
        assert [claim.id for claim in worker.claimer(max_jobs=2, max_queues=2, stretch=2).claims] == [older]

    def test_learns_at_a_glance_when_the_next_job_falls_due(self, runner: Build, wait_until: Wait) -> None:
        worker = runner(poll_interval=600)
        worker.fetcher._poll_interval = 600.0
        run_all(worker, wait_until)
        make_job("quick", {"n": 1})
        make_job("quick", {"n": 2}, run_at=minutes_ago(-2))
        worker.claimer._glancer._is_promising = True
        worker.fetcher.wake()
        worker.fetcher.round()
        wait_until(lambda: ran == [1])
        assert worker.fetcher.round() <= 120

    def test_sleeps_until_the_next_job_is_due(self, runner: Build) -> None:
        worker = runner(poll_interval=80)
        # Who listens looks every ten seconds, whatever the interval.
        worker.fetcher._poll_interval = 80.0
        assert 70 < worker.fetcher.step() <= 80
        make_job("quick", run_at=minutes_ago(-1))
        assert 0 < worker.fetcher.step() <= 60

    def test_a_retry_is_awaited(self, runner: Build, wait_until: Wait) -> None:
        make_job("failing")
        worker = runner(poll_interval=30)
        worker.fetcher._poll_interval = 30.0
        worker.fetcher.step()
        wait_until(lambda: worker.slots.is_idle)
        worker.releaser.step()
        # Somewhat less by now, on a slow machine nothing.
        assert 0 <= worker.fetcher.step() <= math.e

    def test_gives_back_what_waits_too_long_for_a_slot(self, runner: Build, wait_until: Wait) -> None:
        for _ in range(4):
            make_job("slow")
        worker = runner(concurrency=1, local_queue_size=10)
        worker.slots._finished[0], worker.slots._busy_seconds[0] = 0, 0.0
        worker.fetcher._pace._seconds = 0.001
        worker.fetcher.step()
        assert gate.has_begun.acquire(timeout=PATIENCE)
        assert Job.objects.filter(locked_by=worker.worker_id).count() == 4
        wait_until(lambda: worker.slots._line[-1].submitted_at < time.monotonic() - fetching.PATIENCE)
        worker.fetcher.step()
        worker.releaser.step()
        assert Job.objects.filter(locked_by=worker.worker_id).count() == 1
        assert sorted(Job.objects.values_list("attempts", flat=True)) == [0, 0, 0, 1]

    def test_claims_nothing_without_the_lease(self, runner: Build) -> None:
        make_job("quick")
        worker = runner()
        worker.heartbeat._last_beat = -math.inf
        worker.fetcher.step()
        assert Job.objects.get().locked_by is None

    def test_forbidden_flags_may_be_asked_for_asynchronously(self, runner: Build, wait_until: Wait) -> None:
        async def forbidden() -> list[str]:
            return ["heavy"]

        make_job("quick", {"n": 1}, flags={"heavy": True})
        make_job("quick", {"n": 2})
        run_all(runner(forbidden_flags=forbidden), wait_until)
        assert ran == [2]

    def test_only_the_chosen_tasks_run(self, runner: Build, wait_until: Wait) -> None:
        make_job("quick", {"n": 1})
        make_job("failing")
        run_all(runner(tasks=["q*", "failing"], exclude_tasks=["f*"]), wait_until)
        assert ran == [1]
        assert Job.objects.get().attempts == 0

    def test_a_task_name_that_was_cleaned_away_is_found_again(
        self, runner: Build, wait_until: Wait, raw_connection: Callable[..., Any], worker_schema: str
    ) -> None:
        worker = runner()
        raw_connection().execute(f'delete from "{worker_schema}"._private_tasks'.encode())
        add_job("quick", {"n": 7})
        worker.claimer._reviewed_at = -math.inf
        run_all(worker, wait_until)
        assert ran == [7]

    def test_jobs_before_the_place_of_resumption_are_not_forgotten(self, runner: Build, wait_until: Wait) -> None:
        for number in range(20):
            make_job("quick", {"n": number})
        worker = runner(concurrency=5)
        worker.fetcher.step()
        make_job("quick", {"n": 99}, run_at=minutes_ago(60))
        wait_until(lambda: worker.slots.is_idle)
        run_all(worker, wait_until)
        assert sorted(ran) == [*range(20), 99]


class TestListener:
    @pytest.fixture
    def stepped(self, runner: Build) -> Parts:
        return runner()

    @pytest.fixture
    def listener(self, stepped: Parts) -> Listener:
        assert stepped.listener is not None
        return stepped.listener

    def test_looks_once_for_what_came_before_it_listened(self, listener: Listener) -> None:
        assert listener.wait(PATIENCE, unless=never)
        assert not listener.wait(0, unless=never)

    def test_hears_of_jobs_and_proves_itself(self, stepped: Parts, listener: Listener) -> None:
        listener.wait(0, unless=never)
        assert not listener.wait(0.01, unless=never)
        assert stepped.heartbeat.was_woken()
        assert not listener.is_healthy
        stepped.heartbeat.step()
        add_job("quick")
        assert listener.wait(PATIENCE, unless=never)
        assert listener.is_healthy

    def test_what_a_claim_brings_along_is_no_proof(self, stepped: Parts, listener: Listener) -> None:
        listener.wait(0, unless=never)
        listener.wait(0.01, unless=never)
        stepped.heartbeat.forget_wake()
        stepped.heartbeat.step()
        stepped.claimer(max_jobs=1, max_queues=1, stretch=1)
        assert not listener.is_healthy
        # It asks again.
        listener.wait(0.01, unless=never)
        assert stepped.heartbeat.was_woken()

    def test_what_arrives_during_a_claim_is_not_lost(self, stepped: Parts, listener: Listener) -> None:
        listener.wait(0, unless=never)
        add_job("quick", run_at=timedelta(seconds=9))
        assert not stepped.claimer(max_jobs=1, max_queues=1, stretch=1).claims
        assert listener.wait(PATIENCE, unless=never)

    def test_a_call_ends_the_wait(self, listener: Listener, wait_until: Wait) -> None:
        listener.wait(0, unless=never)
        has_news = []
        waiting = threading.Thread(target=lambda: has_news.append(listener.wait(PATIENCE, unless=never)))
        waiting.start()
        wait_until(lambda: listener._bell._is_waiting)
        listener.interrupt()
        waiting.join(PATIENCE)
        assert has_news == [False]

    def test_a_call_before_the_wait_counts(self, listener: Listener) -> None:
        listener.wait(0, unless=never)
        assert not listener.wait(60, unless=lambda: True)

    def test_a_connection_that_was_replaced_listens_again(self, stepped: Parts, listener: Listener) -> None:
        listener.wait(0, unless=never)
        stepped.claimer.close()
        assert listener.wait(0, unless=never)
        add_job("quick")
        assert listener.wait(PATIENCE, unless=never)

    def test_a_worker_with_a_new_id_listens_to_its_own_channel(self, stepped: Parts, listener: Listener) -> None:
        listener.wait(0, unless=never)
        before = listener._connection
        stepped.worker_id = "django-worker-anew"
        stepped.heartbeat.register()
        assert listener.wait(0, unless=never)
        assert listener._connection is not before
        stepped.heartbeat.step()
        add_job("quick")
        assert listener.wait(PATIENCE, unless=never)
        assert listener.is_healthy

    def test_silence_is_a_loss(self, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [0.0]
        lost: list[Exception] = []
        listener._clock = lambda: now[0]
        listener._on_lost = lambda error, delay: lost.append(error)
        listener.wait(0, unless=never)
        listener.is_healthy = True
        listener._silence = 24.99

        def wait(seconds: float, *, unless: Any) -> bool:
            now[0] += seconds
            return False

        monkeypatch.setattr(listener._bell, "wait", wait)
        listener.wait(1, unless=never)
        assert not listener.is_healthy
        assert "heard none" in str(lost[0])
        # It tries again when it said it would, and polls until then.
        assert not listener.wait(0, unless=never)
        now[0] += 1
        assert listener.wait(0, unless=never)

    def test_a_process_that_did_not_run_asks_for_proof_instead_of_blaming_a_pooler(
        self, stepped: Parts, listener: Listener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A suspended laptop, a virtual machine that was paused, SIGSTOP: its heartbeat slept as well."""
        now, pauses = [0.0], [3600.0]
        lost: list[Exception] = []
        listener._clock = lambda: now[0]
        listener._on_lost = lambda error, delay: lost.append(error)
        listener.wait(0, unless=never)
        listener.is_healthy = True
        listener._must_ask = False

        def wait(seconds: float, *, unless: Any) -> bool:
            now[0] += seconds + (pauses.pop() if pauses else 0.0)
            return False

        monkeypatch.setattr(listener._bell, "wait", wait)
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
    def test_understands_the_original_s_payloads(self, payload: str, is_about_jobs: bool) -> None:
        assert announces_jobs(payload) is is_about_jobs


class TestDatabase:
    def test_a_statement_past_its_deadline_is_cancelled(self, runner: Build) -> None:
        settings = runner().settings.replace(statement_timeout=1.0)
        database = Database("default", settings, part="test")
        with pytest.raises(psycopg.OperationalError), database.cursor() as cursor:
            # The server has been told as well: this is about who looks at the clock here.
            cursor.execute("set statement_timeout = 0")
            cursor.execute("select pg_sleep(200)")
        with database.cursor() as cursor:
            assert cursor.execute("select 1").fetchone() == (1,)
        database.close()

    def test_what_cannot_be_cancelled_is_cut(self, runner: Build) -> None:
        worker = runner()
        database = Database("default", worker.settings, part="test")
        now = [0.0]
        watchdog = Watchdog(clock=lambda: now[0])
        connection = database.connection()
        with watchdog.watch(connection, 1.0):
            now[0] = 2.0
            watchdog.bark()
            watchdog.bark()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("select 1")
        database.close()

    def test_a_read_only_server_is_left(self, runner: Build) -> None:
        worker = runner()
        database = Database("default", worker.settings, part="test")
        with database.cursor() as cursor:
            cursor.execute("set default_transaction_read_only = on")
        first = database.connection()
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), database.cursor() as cursor:
            cursor.execute("create table somewhere (id int)")
        assert database.connection() is not first
        database.close()
