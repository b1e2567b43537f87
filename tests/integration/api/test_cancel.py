"""cancel_jobs() and cancel_by_key(): what they make of jobs in every state, and what they record."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings as django_settings
from django.db import transaction
from django.test import override_settings

from django_graphile_worker import (
    CancelResult,
    InvalidJobError,
    InvalidTypeError,
    JobCancelledError,
    Result,
    ResultStatus,
    acancel_by_key,
    acancel_jobs,
    add_job,
    cancel_by_key,
    cancel_jobs,
    force_unlock_workers,
    get_job,
    remove_job,
    reschedule_jobs,
    result,
    signals,
)
from django_graphile_worker.sql import claims, control, releases
from django_graphile_worker.sql.control import CONTROL_CHANNEL, Cancellation
from tests.conftest import WAIT_TIMEOUT, RawConnection
from tests.support import records
from tests.support.factories import make_failed_job, make_job, minutes_ago
from tests.support.rows import in_quotes, query
from tests.support.slot import make_claim

OURS = "django-worker-0123456789abcdef01/7"
WORKER_ID = OURS.partition("/")[0]
NODE = "worker-0123456789abcdef01"


@pytest.fixture
def told() -> Iterator[list[dict[str, Any]]]:
    """The arguments of every signal job_cancelled."""
    received: list[dict[str, Any]] = []

    def receiver(**arguments: Any) -> None:
        received.append(arguments)

    signals.job_cancelled.connect(receiver)
    yield received
    signals.job_cancelled.disconnect(receiver)


def requests(schema: str) -> list[Any]:
    return query(
        f"select job_id, token, worker_id, reason, requested_by from {in_quotes(schema)}._private_stop_requests"
        " order by job_id, token"
    )


def keeping() -> Any:
    return override_settings(GRAPHILE_WORKER=django_settings.GRAPHILE_WORKER | {"KEEP_RESULTS": 60, "HISTORY": 86_400})


def kept(job_id: int) -> Result:
    found = result(job_id)
    assert found is not None
    return found


@pytest.mark.django_db
class TestJobsInEveryState:
    def test_each_id_is_told_once(self, worker_schema: str) -> None:
        waiting = add_job("send_email").id
        scheduled = make_job(run_at=minutes_ago(-60))
        ours, node = make_job(locked_by=OURS, attempts=1), make_job(locked_by=NODE, attempts=1)
        failed = make_failed_job()
        unknown = 2**62

        found = cancel_jobs([unknown, failed, node, ours, scheduled, waiting, waiting])

        assert found == CancelResult(
            removed=(waiting, scheduled), stopping=(ours,), unstoppable=(node,), ended=(failed,), unknown=(unknown,)
        )
        assert found.cancelled == (waiting, scheduled, ours)
        assert [get_job(each) is None for each in (waiting, scheduled, ours, node, failed)] == [True] * 2 + [False] * 3
        assert [row[:3] for row in requests(worker_schema)] == [(ours, OURS, WORKER_ID), (node, NODE, NODE)]

    def test_a_running_job_is_not_tried_again(self) -> None:
        """No statement of any worker, of this version or another, lets it run: it has no attempts left."""
        ours, node = (make_job(locked_by=by, attempts=1, key=by) for by in (OURS, NODE))
        cancel_jobs([ours, node])
        for job_id in (ours, node):
            job = get_job(job_id)
            assert job is not None
            assert (job.attempts, job.max_attempts, job.key) == (25, 25, None)

    def test_a_lock_of_a_dead_worker_is_no_obstacle(self, worker_schema: str) -> None:
        stale = make_job(locked_by=NODE, locked_at=minutes_ago(5 * 60), attempts=1)
        assert cancel_jobs([stale]).removed == (stale,)

    def test_an_old_lock_of_a_living_worker_is_a_lock(self, worker_schema: str) -> None:
        """The locks of atomic jobs are not renewed."""
        query(
            f"insert into {in_quotes(worker_schema)}._private_workers (id, metadata) values (%s, '{{}}') returning 1",
            WORKER_ID,
        )
        old = make_job(locked_by=OURS, locked_at=minutes_ago(5 * 60), attempts=1)
        assert cancel_jobs([old]).stopping == (old,)

    def test_of_two_operators_the_first_is_recorded(self, worker_schema: str) -> None:
        job_id = make_job(locked_by=OURS, attempts=3, key="key")
        assert cancel_jobs([job_id], by="maria", reason="twice").stopping == (job_id,)
        assert cancel_jobs([job_id], by="paul").stopping == (job_id,)
        assert requests(worker_schema) == [(job_id, OURS, WORKER_ID, "twice", "maria")]
        marker = query(f"select kind, attempts, job_key from {in_quotes(worker_schema)}._private_cancellations")
        assert marker == [("removed", 3, "key")]

    def test_a_later_claim_of_node_with_the_same_name_is_another(self, worker_schema: str) -> None:
        job_id = make_job(locked_by=NODE, attempts=1)
        cancel_jobs([job_id], by="maria")
        schema = in_quotes(worker_schema)
        query(f"update {schema}._private_stop_requests set requested_at = now() - interval '1 hour' returning 1")
        query(f"update {schema}._private_cancellations set cancelled_at = now() - interval '1 hour' returning 1")
        query(f"update {schema}._private_jobs set attempts = 2 returning 1")
        assert cancel_jobs([job_id], by="paul").unstoppable == (job_id,)
        assert [row[4] for row in requests(worker_schema)] == ["paul"]

    def test_a_job_that_was_removed_or_replaced_while_it_runs_can_be_stopped(self, worker_schema: str) -> None:
        removed, replaced = make_job(locked_by=OURS, attempts=1, key="a"), make_job(locked_by=OURS, attempts=1, key="b")
        remove_job("a")
        add_job("send_email", job_key="b")
        assert cancel_jobs([removed, replaced]).stopping == (removed, replaced)
        markers = query(f"select kind, attempts, job_key from {in_quotes(worker_schema)}._private_cancellations")
        assert sorted(markers) == [("removed", 1, "a"), ("removed", 1, "b")]

    def test_a_job_that_is_rescheduled_hours_later_may_run(self, worker_schema: str) -> None:
        job_id = make_job(locked_by=NODE, attempts=1)
        cancel_jobs([job_id])
        schema = in_quotes(worker_schema)
        query(f"update {schema}._private_jobs set locked_at = now() - interval '5 hours' returning 1")
        assert reschedule_jobs([job_id], attempts=0)
        assert requests(worker_schema) == []

    def test_nothing_is_nothing(self) -> None:
        assert cancel_jobs([]) == CancelResult()


@pytest.mark.django_db
class TestByKey:
    def test_a_running_job(self, worker_schema: str) -> None:
        job_id = make_job(locked_by=OURS, attempts=1, key="key")
        assert cancel_by_key("key", reason="twice", by="maria") == CancelResult(stopping=(job_id,))
        assert requests(worker_schema) == [(job_id, OURS, WORKER_ID, "twice", "maria")]

    @pytest.mark.parametrize("key", [None, 5, ""])
    def test_bad_keys_are_refused(self, key: Any) -> None:
        with pytest.raises((InvalidTypeError, InvalidJobError), match=r"^job_key: expected"):
            cancel_by_key(key)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("5",), r"^job_ids: expected a list of jobs or job ids, got str"),
        ((["a"],), r"^job_ids: expected"),
        (([0],), r"^job_ids: expected"),
        (([1], {"reason": None}), r"^reason: expected a string, got None"),
        (([1], {"by": 5}), r"^by: expected a string, got 5"),
    ],
)
def test_bad_input_is_refused_before_any_statement(arguments: Any, message: str) -> None:
    ids, options = arguments[0], arguments[1] if len(arguments) > 1 else {}
    with pytest.raises((InvalidTypeError, InvalidJobError), match=message):
        cancel_jobs(ids, **options)


@pytest.mark.django_db
class TestRecords:
    def test_a_removed_job_leaves_who_and_why(self, worker_schema: str) -> None:
        with keeping():
            job = add_job("send_email", job_key="key", queue_name="mail")
            cancel_jobs([job.id], reason='sent "twice"', by="maria")
            found = kept(job.id)
        assert (found.status, found.cancelled_by, found.cancel_reason) == (
            ResultStatus.CANCELLED,
            "maria",
            'sent "twice"',
        )
        assert found.is_finished
        assert (found.attempts, found.last_error) == ((), None)
        (row,) = records.history(worker_schema)
        assert (row.outcome, row.job_id, row.error) == (8, job.id, 'Cancelled by maria: sent "twice"')
        assert (row.job_key, row.queue_name, row.worker_id, row.started_at) == ("key", "mail", None, None)
        with pytest.raises(JobCancelledError, match=r"it was cancelled\. Cancelled by maria: sent \"twice\"$"):
            found.value  # noqa: B018 - it raises

    def test_a_call_about_a_job_that_has_ended_says_so(self) -> None:
        with keeping():
            job = add_job("send_email")
            cancel_jobs([job.id])
            assert cancel_jobs([job.id]) == CancelResult(ended=(job.id,))
            with pytest.raises(JobCancelledError, match=r"it was cancelled\. Cancelled\.$"):
                kept(job.id).value  # noqa: B018 - it raises

    def test_force_unlocking_a_worker_ends_its_cancelled_jobs(
        self, worker_schema: str, told: list[Any], django_capture_on_commit_callbacks: Any
    ) -> None:
        running = make_job("send_email", locked_by=OURS, attempts=2, key="key")
        other = make_job("send_email", locked_by=OURS, attempts=1)
        cancel_jobs([running], reason="twice", by="maria")
        with keeping(), django_capture_on_commit_callbacks(execute=True):
            force_unlock_workers([WORKER_ID])
        assert get_job(running) is None
        job = get_job(other)
        assert job is not None
        assert job.locked_by is None
        (arguments,) = told
        assert (arguments["job"].id, arguments["job"].attempts, arguments["job"].key) == (running, 2, "key")
        assert (arguments["reason"], arguments["cancelled_by"]) == ("twice", "maria")
        assert requests(worker_schema) == []
        assert records.results(worker_schema)[running].status == 4


@pytest.mark.django_db
class TestTheSignal:
    def test_is_sent_at_the_commit_for_removed_jobs(
        self, told: list[Any], django_capture_on_commit_callbacks: Any
    ) -> None:
        job, running = add_job("send_email", {"n": 1}), make_job(locked_by=OURS, attempts=1)
        with django_capture_on_commit_callbacks(execute=True):
            cancel_jobs([job.id, running], reason="twice", by="maria")
            assert told == []
        (arguments,) = told
        assert arguments["job"] == job
        about = {name: arguments[name] for name in ("worker_id", "database", "installation", "duration")}
        assert about == {"worker_id": "", "database": "default", "installation": "default", "duration": None}
        assert (arguments["reason"], arguments["cancelled_by"]) == ("twice", "maria")

    def test_is_not_sent_after_a_rollback(self, told: list[Any], django_capture_on_commit_callbacks: Any) -> None:
        job = add_job("send_email")
        with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
            cancel_jobs([job.id])
            transaction.set_rollback(True)
        assert told == []
        assert get_job(job.id) == job


@pytest.mark.django_db(transaction=True)
class TestTheNotification:
    @pytest.fixture
    def heard(self, raw_connection: Callable[..., RawConnection]) -> Callable[[], list[str]]:
        listening = raw_connection()
        listening.execute(f'listen "{CONTROL_CHANNEL}"')

        def heard() -> list[str]:
            # The server sends what was notified before with the result of this statement.
            listening.execute("select 1")
            return [notice.payload for notice in listening.notifies(timeout=0)]

        return heard

    def test_is_sent_at_the_commit(self, heard: Callable[[], list[str]], worker_schema: str) -> None:
        running = make_job(locked_by=OURS, attempts=1)
        with transaction.atomic():
            cancel_jobs([running])
            assert heard() == []
        assert heard() == [worker_schema]

    def test_is_only_for_jobs_that_a_worker_of_ours_runs(self, heard: Callable[[], list[str]]) -> None:
        cancel_jobs([add_job("send_email").id, make_job(locked_by=NODE, attempts=1), make_failed_job(), 2**62])
        assert heard() == []


@pytest.mark.django_db
def test_async_variants() -> None:
    job, other = add_job("send_email"), add_job("send_email", job_key="key")

    async def cancel() -> tuple[CancelResult, CancelResult]:
        return await acancel_jobs([job.id], reason="twice"), await acancel_by_key("key", by="maria")

    assert async_to_sync(cancel)() == (CancelResult(removed=(job.id,)), CancelResult(removed=(other.id,)))


@pytest.mark.django_db(transaction=True)
class TestTwoSessions:
    """Of two sessions that want the same job, the second waits for the first, or leaves the job to it."""

    BY = Cancellation(reason="", by="paul")

    def test_two_operators_at_once_wait_for_each_other(
        self, raw_connection: Callable[..., RawConnection], worker_schema: str
    ) -> None:
        waiting, running = add_job("send_email").id, make_job(locked_by=OURS, attempts=1)
        second = raw_connection()
        told: list[Any] = []

        def cancel() -> None:
            told.extend(control.cancel_jobs(second.cursor(), [running, waiting], self.BY, schema=worker_schema))

        thread = threading.Thread(target=cancel)
        with transaction.atomic():
            cancel_jobs([waiting, running], by="maria")
            thread.start()
            wait_for_lock(second.info.backend_pid)
        thread.join(WAIT_TIMEOUT)
        assert [(fate.job_id, fate.fate) for fate in told] == [(running, "stopping"), (waiting, "unknown")]
        assert [row[4] for row in requests(worker_schema)] == ["maria"]

    def test_a_statement_that_ends_a_claim_leaves_no_moment_for_a_cancellation(
        self, raw_connection: Callable[..., RawConnection], worker_schema: str
    ) -> None:
        """The statement waits after its look for requests, before it returns the jobs.

        A cancellation that was committed there would end without who and why. So the rows are locked before the look,
        and a row that was locked then is not returned, also if it is free afterwards.
        """
        free, locked = (make_claim(id=make_job(locked_by=OURS, attempts=1), token=OURS) for _ in range(2))
        schema = in_quotes(worker_schema)
        worker, operator, other = raw_connection(), raw_connection(), raw_connection()
        lock = f"select id from {schema}._private_jobs where id = any (%s) for update skip locked".encode()
        with ThreadPoolExecutor(1) as pool:
            with other.transaction():
                other.execute(f"lock {schema}._private_cancellations in access exclusive mode".encode())
                with operator.transaction():
                    operator.execute(lock, [[locked.id]])
                    ended = pool.submit(releases.return_jobs, worker.cursor(), [free, locked], schema=worker_schema)
                    wait_for_lock(worker.info.backend_pid)
                assert operator.execute(lock, [[free.id, locked.id]]).fetchall() == [(locked.id,)]
            assert ended.result(WAIT_TIMEOUT) == {free.id}
        assert cancel_jobs([locked.id], by="maria").stopping == (locked.id,)

    def test_a_claim_and_a_cancellation_never_both_win(
        self, raw_connection: Callable[..., RawConnection], worker_schema: str
    ) -> None:
        job = add_job("send_email")
        (task_id,) = query(f"select task_id from {in_quotes(worker_schema)}._private_jobs")[0]
        worker = raw_connection()

        def claim() -> list[int]:
            found = claims.claim_jobs(
                worker.cursor(),
                schema=worker_schema,
                token=OURS,
                task_ids=[task_id],
                max_jobs=1,
                max_per_queue=1,
            )
            return [each.id for each in found.claims]

        with transaction.atomic():
            cancel_jobs([job.id])
            assert claim() == []
            transaction.set_rollback(True)
        assert claim() == [job.id]
        assert cancel_jobs([job.id]).stopping == (job.id,)


def wait_for_lock(backend_pid: int) -> None:
    """Wait until this session waits for a lock."""
    waits = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
    deadline = time.monotonic() + WAIT_TIMEOUT
    while query("select pg_stat_clear_snapshot()") and query(waits, backend_pid) != [(True,)]:
        assert time.monotonic() < deadline
