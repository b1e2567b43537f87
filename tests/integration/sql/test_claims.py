"""Claims: what is taken, in which order, and who may end it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from django_graphile_worker.sql import claims, releases, rescue, workers
from django_graphile_worker.sql.claims import Claim, Claimed
from django_graphile_worker.sql.releases import Failure, HeldQueue
from django_graphile_worker.sql.remains import Remains, return_remains
from tests.factories import cancel_claimed, make_failed_job, make_job, make_queue, make_task, minutes_ago

pytestmark = pytest.mark.django_db

WORKER_ID = "django-worker-1"
WORKER, OTHER = f"{WORKER_ID}/1", "django-worker-2/1"


@pytest.fixture
def cursor() -> Any:
    with connection.cursor() as cursor:
        yield cursor


@pytest.fixture(params=["few jobs in all", "a crowd"])
def claim(request: pytest.FixtureRequest, cursor: Any, worker_schema: str) -> Callable[..., Claimed]:
    """A claim sees all jobs at a glance, or finds its own in a crowd of others."""
    if request.param == "a crowd":
        cursor.execute(
            f"""insert into "{worker_schema}"._private_jobs (task_id, priority)"""
            " select %s, -9 from generate_series(1, 60)",
            [make_task("the crowd's")],
        )

    def claim(*tasks: str, **options: Any) -> Claimed:
        parameters: dict[str, Any] = {"holder": WORKER, "max_jobs": 100, "max_queues": 10, "stretch": 10} | options
        task_ids = [make_task(task) for task in tasks or ("task",)]
        return claims.claim_jobs(cursor, schema=worker_schema, task_ids=task_ids, **parameters)

    return claim


def ids(claimed: Claimed) -> list[int]:
    return [claim.id for claim in claimed.claims]


def row(cursor: Any, job_id: int, schema: str) -> dict[str, Any] | None:
    cursor.execute(f'select * from "{schema}"._private_jobs where id = %s', [job_id])
    values = cursor.fetchone()
    return None if values is None else dict(zip([column[0] for column in cursor.description], values, strict=True))


class TestOrder:
    def test_is_priority_then_due_time_then_id(self, claim: Callable[..., Claimed]) -> None:
        late = make_job(priority=5, run_at=minutes_ago(60))
        older = make_job(run_at=minutes_ago(10))
        newer = make_job(run_at=minutes_ago(5))
        same_time = minutes_ago(5)
        first, second = make_job(run_at=same_time, priority=-1), make_job(run_at=same_time, priority=-1)
        assert ids(claim()) == [first, second, older, newer, late]

    def test_holds_across_tasks_queues_and_flags(self, claim: Callable[..., Claimed]) -> None:
        one = make_job("a", run_at=minutes_ago(9))
        two = make_job("b", run_at=minutes_ago(8), queue_name="q")
        three = make_job("c", run_at=minutes_ago(7), flags={"f": True})
        four = make_job("a", run_at=minutes_ago(6))
        assert ids(claim("a", "b", "c")) == [one, two, three, four]

    def test_decides_what_a_small_claim_gets(self, claim: Callable[..., Claimed]) -> None:
        make_job("a", run_at=minutes_ago(1))
        queued = make_job("b", run_at=minutes_ago(8), queue_name="q", priority=-1)
        flagged = make_job("a", run_at=minutes_ago(9), flags={"f": True})
        assert ids(claim("a", "b", max_jobs=2)) == [queued, flagged]


class TestWhatIsClaimed:
    def test_leaves_future_failed_locked_and_unknown_jobs(self, claim: Callable[..., Claimed]) -> None:
        make_job(run_at=minutes_ago(-1))
        make_failed_job()
        make_job(locked_by="somebody")
        make_job("unknown")
        ready = make_job()
        assert ids(claim()) == [ready]

    def test_counts_the_attempt_and_names_the_holder(
        self, claim: Callable[..., Claimed], cursor: Any, worker_schema: str
    ) -> None:
        job_id = make_job(payload={"a": 1})
        (claimed,) = claim().claims
        assert (claimed.id, claimed.attempts, claimed.payload_text) == (job_id, 1, '{"a": 1}')
        stored = row(cursor, job_id, worker_schema)
        assert stored is not None
        assert (stored["attempts"], stored["locked_by"]) == (1, WORKER)

    def test_takes_no_more_than_asked_for(self, claim: Callable[..., Claimed]) -> None:
        for _ in range(5):
            make_job()
        claimed = claim(max_jobs=3)
        assert len(claimed.claims) == 3
        assert claimed.was_full

    def test_forbidden_flags_are_stepped_over(self, claim: Callable[..., Claimed]) -> None:
        make_job(flags={"heavy": True})
        make_job(flags={"heavy": True, "eu": True})
        allowed = make_job(flags={"eu": True})
        plain = make_job()
        queued = make_job(flags={"heavy": True}, queue_name="q")
        claimed = claim(forbidden_flags=["heavy"])
        assert set(ids(claimed)) == {allowed, plain}
        assert queued not in ids(claimed)

    def test_a_queued_job_behind_a_forbidden_one_is_found(self, claim: Callable[..., Claimed]) -> None:
        make_job(flags={"heavy": True}, queue_name="q", run_at=minutes_ago(5))
        allowed = make_job(queue_name="q")
        assert ids(claim(forbidden_flags=["heavy"])) == [allowed]

    def test_tells_when_the_next_job_falls_due(self, claim: Callable[..., Claimed]) -> None:
        make_job(run_at=minutes_ago(-30))
        make_job(run_at=minutes_ago(-10), priority=7, queue_name="q")
        make_job("unknown", run_at=minutes_ago(-1))
        claimed = claim()
        assert claimed.claims == []
        assert claimed.seconds_until_next == pytest.approx(600, abs=5)

    def test_nothing_scheduled_is_told_as_such(self, claim: Callable[..., Claimed]) -> None:
        assert claim() == Claimed(claims=[], seconds_until_next=None, was_full=False)

    def test_now_can_be_given(self, claim: Callable[..., Claimed]) -> None:
        job_id = make_job(run_at=datetime(2040, 1, 1, tzinfo=UTC))
        assert ids(claim(now=datetime(2039, 12, 31, tzinfo=UTC))) == []
        assert ids(claim(now=datetime(2040, 1, 1, tzinfo=UTC))) == [job_id]

    def test_a_date_that_python_cannot_hold_is_no_obstacle(
        self, claim: Callable[..., Claimed], cursor: Any, worker_schema: str
    ) -> None:
        job_id = make_job()
        try:
            cursor.execute("savepoint odd")
            cursor.execute(
                f"""update "{worker_schema}"._private_jobs set created_at = 'infinity', run_at = '-infinity'
                where id = %s""",
                [job_id],
            )
        except Exception:
            cursor.execute("rollback to savepoint odd")
            cursor.execute(f"""update "{worker_schema}"._private_jobs set created_at = '294276-01-01'""")
        (claimed,) = claim().claims
        job = claimed.to_job(task_identifier="task", payload={}, locked_at_epoch=0.0)
        assert job.created_at == datetime.max.replace(tzinfo=UTC)


class TestQueues:
    def test_a_queue_is_taken_whole_and_in_order(
        self, claim: Callable[..., Claimed], cursor: Any, worker_schema: str
    ) -> None:
        third = make_job("a", queue_name="q", run_at=minutes_ago(1))
        first = make_job("b", queue_name="q", priority=-2)
        second = make_job("a", queue_name="q", run_at=minutes_ago(5))
        assert ids(claim("a", "b", stretch=3)) == [first, second, third]
        cursor.execute(f'select locked_by from "{worker_schema}"._private_job_queues')
        assert cursor.fetchone() == (WORKER,)

    def test_nobody_else_gets_a_job_of_a_queue_in_hand(self, claim: Callable[..., Claimed]) -> None:
        for _ in range(5):
            make_job(queue_name="q")
        assert len(claim(stretch=2).claims) == 2
        assert claim(holder=OTHER).claims == []
        assert claim().claims == []

    def test_a_queue_that_somebody_holds_is_left_alone(self, claim: Callable[..., Claimed]) -> None:
        make_queue("busy", locked_by="pool-node")
        make_job(queue_name="busy", run_at=minutes_ago(5))
        free = make_job(queue_name="free")
        assert ids(claim()) == [free]

    def test_no_more_queues_than_asked_for(self, claim: Callable[..., Claimed]) -> None:
        for number in range(5):
            make_job(queue_name=f"q{number}")
        assert len(claim(max_queues=2).claims) == 2
        assert len(claim(max_queues=0).claims) == 0

    def test_a_long_backlog_behind_a_busy_queue_hides_nobody(
        self, claim: Callable[..., Claimed], cursor: Any, worker_schema: str
    ) -> None:
        busy = make_queue("busy", locked_by="pool-node")
        cursor.execute(
            f"""insert into "{worker_schema}"._private_jobs (task_id, job_queue_id, run_at)
            select %s, %s, now() - interval '1 hour' from generate_series(1, 500)""",
            [make_task("task"), busy],
        )
        hidden = [make_job(queue_name=f"free{number}") for number in range(3)]
        assert sorted(ids(claim())) == hidden

    def test_future_jobs_of_a_queue_wait(self, claim: Callable[..., Claimed]) -> None:
        make_job(queue_name="q", run_at=minutes_ago(-5), priority=-10)
        due = make_job(queue_name="q")
        assert ids(claim()) == [due]


class TestEndingAClaim:
    @pytest.fixture
    def claimed(self, claim: Callable[..., Claimed]) -> Claim:
        make_job(payload=[1, 2])
        return claim().claims[0]

    def test_completing_deletes(self, claimed: Claim, cursor: Any, worker_schema: str) -> None:
        done = releases.complete_jobs(cursor, [claimed], schema=worker_schema)
        assert done == {claimed.id}
        assert row(cursor, claimed.id, worker_schema) is None

    def test_failing_keeps_the_error_and_backs_off(self, claimed: Claim, cursor: Any, worker_schema: str) -> None:
        failed = releases.fail_jobs(cursor, [Failure(claim=claimed, error="Oh no")], schema=worker_schema)
        assert failed == {claimed.id: pytest.approx(2.718, abs=0.01)}
        stored = row(cursor, claimed.id, worker_schema)
        assert stored is not None
        assert (stored["last_error"], stored["attempts"], stored["locked_by"]) == ("Oh no", 1, None)

    def test_failing_tells_when(self, claimed: Claim, cursor: Any, worker_schema: str) -> None:
        moment = datetime(2030, 1, 1, tzinfo=UTC)
        releases.fail_jobs(cursor, [Failure(claim=claimed, error="oh")], schema=worker_schema, now=moment)
        failed = row(cursor, claimed.id, worker_schema)
        assert failed is not None
        assert failed["updated_at"] == moment
        assert failed["run_at"] > moment

    def test_failing_obeys_delay_permanence_and_payload(self, claimed: Claim, cursor: Any, worker_schema: str) -> None:
        failure = Failure(claim=claimed, error="Oh no", delay=60.0, payload_text="[2]")
        assert releases.fail_jobs(cursor, [failure], schema=worker_schema) == {claimed.id: pytest.approx(60, abs=0.01)}
        cursor.execute(f'select payload::text from "{worker_schema}"._private_jobs where id = %s', [claimed.id])
        assert cursor.fetchone() == ("[2]",)

    def test_failing_for_good_leaves_no_attempt(self, claimed: Claim, cursor: Any, worker_schema: str) -> None:
        failure = Failure(claim=claimed, error="Oh no", permanent=True)
        assert releases.fail_jobs(cursor, [failure], schema=worker_schema) == {claimed.id: None}
        stored = row(cursor, claimed.id, worker_schema)
        assert stored is not None
        assert stored["attempts"] == stored["max_attempts"] == 25

    def test_returning_gives_the_attempt_back(self, claimed: Claim, cursor: Any, worker_schema: str) -> None:
        assert releases.return_jobs(cursor, [claimed], schema=worker_schema) == {claimed.id}
        stored = row(cursor, claimed.id, worker_schema)
        assert stored is not None
        assert (stored["attempts"], stored["locked_by"], stored["is_available"]) == (0, None, True)

    def test_returning_what_remains_gives_the_attempt_back(
        self, claimed: Claim, cursor: Any, worker_schema: str
    ) -> None:
        ended = [Remains(claimed, "[2]")]
        assert return_remains(cursor, ended, schema=worker_schema) == {claimed.id}
        stored = row(cursor, claimed.id, worker_schema)
        assert stored is not None
        assert (stored["attempts"], stored["locked_by"], stored["is_available"]) == (0, None, True)
        cursor.execute(f'select payload::text from "{worker_schema}"._private_jobs where id = %s', [claimed.id])
        assert cursor.fetchone() == ("[2]",)

    @pytest.mark.parametrize("stale", ["another worker", "another claim", "nobody"])
    def test_a_lost_claim_changes_nothing(self, claimed: Claim, cursor: Any, worker_schema: str, stale: str) -> None:
        change = {
            "another worker": "locked_by = 'django-worker-2/1'",
            "another claim": "locked_by = 'django-worker-1/2'",
            "nobody": "locked_by = null, locked_at = null",
        }[stale]
        cursor.execute(f'update "{worker_schema}"._private_jobs set {change}')
        before = row(cursor, claimed.id, worker_schema)
        shared: dict[str, Any] = {"schema": worker_schema}
        assert releases.complete_jobs(cursor, [claimed], **shared) == set()
        assert releases.fail_jobs(cursor, [Failure(claim=claimed, error="Oh no")], **shared) == {}
        assert releases.return_jobs(cursor, [claimed], **shared) == set()
        assert return_remains(cursor, [Remains(claimed, "[2]")], **shared) == set()
        assert releases.still_claimed(cursor, [claimed], **shared) == set()
        assert not releases.complete_in_transaction(cursor, claimed, **shared)
        assert row(cursor, claimed.id, worker_schema) == before

    @pytest.mark.parametrize("kind", ["removed", "replaced"])
    def test_a_job_that_is_cancelled_while_it_runs_may_still_be_completed(
        self, claimed: Claim, cursor: Any, worker_schema: str, kind: str
    ) -> None:
        cancel_claimed(claimed.id, kind)
        assert releases.still_claimed(cursor, [claimed], schema=worker_schema) == {claimed.id}
        assert releases.complete_jobs(cursor, [claimed], schema=worker_schema) == {claimed.id}

    @pytest.mark.parametrize("kind", ["removed", "replaced"])
    def test_a_job_that_is_cancelled_while_it_runs_and_fails_is_not_tried_again(
        self, claimed: Claim, cursor: Any, worker_schema: str, kind: str
    ) -> None:
        cancel_claimed(claimed.id, kind)
        failed = releases.fail_jobs(cursor, [Failure(claim=claimed, error="Oh no")], schema=worker_schema)
        assert failed == {claimed.id: None}
        stored = row(cursor, claimed.id, worker_schema)
        assert stored is not None
        assert (stored["attempts"], stored["last_error"]) == (25, "Oh no")

    @pytest.mark.parametrize("payload_text", [None, "[2]"], ids=["whole", "remains"])
    @pytest.mark.parametrize(
        ("kind", "payload", "is_kept"),
        [
            ("removed", {"a": 1}, False),
            ("removed", [1, 2], False),
            ("replaced", {"a": 1}, False),
            ("replaced", [1, 2], True),
        ],
    )
    def test_a_cancelled_job_that_is_returned_runs_again_only_if_its_payload_is_nowhere_else(
        self,
        claim: Callable[..., Claimed],
        cursor: Any,
        worker_schema: str,
        kind: str,
        payload: Any,
        is_kept: bool,
        payload_text: str | None,
    ) -> None:
        if payload_text and not isinstance(payload, list):
            pytest.skip("only an array is done in parts")
        job_id = make_job(payload=payload, key="k", attempts=2)
        (claimed,) = claim().claims
        cancel_claimed(job_id, kind)
        if payload_text is None:
            assert releases.return_jobs(cursor, [claimed], schema=worker_schema) == {job_id}
        else:
            assert return_remains(cursor, [Remains(claimed, payload_text)], schema=worker_schema) == {job_id}
        stored = row(cursor, job_id, worker_schema)
        assert (stored is not None) == is_kept
        if stored is not None:
            assert (stored["attempts"], stored["key"], stored["is_available"]) == (2, None, True)
            cursor.execute(f'select payload::text from "{worker_schema}"._private_jobs where id = %s', [job_id])
            assert cursor.fetchone() == (payload_text or "[1, 2]",)

    def test_a_marker_of_an_earlier_claim_has_no_effect(
        self, claim: Callable[..., Claimed], cursor: Any, worker_schema: str
    ) -> None:
        """Somebody has made a cancelled job available again: its next claim is not cancelled."""
        job_id = make_job(max_attempts=1)
        claim()
        cancel_claimed(job_id, "removed")
        cursor.execute(f'update "{worker_schema}"._private_jobs set attempts = 0, locked_at = null, locked_by = null')
        (again,) = claim(holder=f"{WORKER_ID}/2").claims
        assert releases.return_jobs(cursor, [again], schema=worker_schema) == {job_id}
        stored = row(cursor, job_id, worker_schema)
        assert stored is not None
        assert (stored["attempts"], stored["is_available"]) == (0, True)

    def test_a_statement_that_arrives_late_changes_no_later_claim_of_the_same_worker(
        self, claim: Callable[..., Claimed], cursor: Any, worker_schema: str
    ) -> None:
        """The job went back with its attempt and was claimed again: only the number of the claim tells them apart."""
        make_job(queue_name="q", payload=[1])
        (first,) = claim().claims
        assert first.queue_id is not None
        releases.return_jobs(cursor, [first], schema=worker_schema)
        releases.release_queues(cursor, [HeldQueue(first.queue_id, first.holder)], schema=worker_schema)
        (second,) = claim(holder=f"{WORKER_ID}/2").claims
        assert (second.id, second.attempts) == (first.id, first.attempts)
        before = row(cursor, first.id, worker_schema)
        shared: dict[str, Any] = {"schema": worker_schema}
        assert releases.complete_jobs(cursor, [first], **shared) == set()
        assert releases.fail_jobs(cursor, [Failure(claim=first, error="Oh no")], **shared) == {}
        assert releases.return_jobs(cursor, [first], **shared) == set()
        assert return_remains(cursor, [Remains(first, "[]")], **shared) == set()
        assert not releases.complete_in_transaction(cursor, first, **shared)
        assert releases.release_queues(cursor, [HeldQueue(first.queue_id, first.holder)], **shared) == set()
        assert row(cursor, first.id, worker_schema) == before
        assert releases.complete_jobs(cursor, [second], **shared) == {second.id}

    def test_a_queue_is_let_go_by_its_claim_only(
        self, claim: Callable[..., Claimed], cursor: Any, worker_schema: str
    ) -> None:
        make_job(queue_name="q")
        waiting = make_job(queue_name="q")
        (claimed,) = claim(stretch=1).claims
        queue_id = claimed.queue_id or 0

        def release(holder: str) -> set[int]:
            return releases.release_queues(cursor, [HeldQueue(queue_id, holder)], schema=worker_schema)

        def waits() -> set[int]:
            return releases.waiting_queues(cursor, [queue_id], schema=worker_schema, notify=True)

        assert (release(OTHER), waits()) == (set(), set())
        assert claim().claims == []
        assert (release(WORKER), waits()) == ({queue_id}, {queue_id})
        assert ids(claim()) == [waiting]


class TestRecovery:
    @pytest.fixture
    def dead(self, cursor: Any, worker_schema: str) -> str:
        long_ago = datetime.now(UTC) - timedelta(minutes=10)
        workers.register_worker(cursor, WORKER_ID, {}, schema=worker_schema, now=long_ago)
        return WORKER_ID

    def recover(self, cursor: Any, schema: str) -> rescue.Recovered:
        return rescue.recover(cursor, schema=schema, timeout=60.0)

    def test_frees_jobs_and_queues_of_a_silent_worker(
        self, dead: str, claim: Callable[..., Claimed], cursor: Any, worker_schema: str
    ) -> None:
        make_job(queue_name="q")
        (claimed,) = claim().claims
        recovered = self.recover(cursor, worker_schema)
        assert recovered.dead_worker_ids == (dead,)
        assert recovered.job_ids == (claimed.id,)
        assert recovered.queue_ids == (claimed.queue_id,)
        stored = row(cursor, claimed.id, worker_schema)
        assert stored is not None
        assert (stored["attempts"], stored["locked_by"]) == (0, None)
        assert self.recover(cursor, worker_schema).dead_worker_ids == ()

    def test_leaves_a_beating_worker_alone(
        self, claim: Callable[..., Claimed], cursor: Any, worker_schema: str
    ) -> None:
        workers.register_worker(cursor, WORKER_ID, {}, schema=worker_schema)
        make_job()
        claim()
        assert self.recover(cursor, worker_schema) == rescue.Recovered((), (), (), is_partial=False)

    def test_finds_a_claim_that_arrived_after_the_funeral(
        self, claim: Callable[..., Claimed], cursor: Any, worker_schema: str
    ) -> None:
        make_job()
        (claimed,) = claim(now=minutes_ago(-5)).claims or claim(now=minutes_ago(0)).claims
        cursor.execute(f"""update "{worker_schema}"._private_jobs set locked_at = now() - interval '2 minutes'""")
        assert self.recover(cursor, worker_schema).job_ids == (claimed.id,)

    def test_judges_strangers_by_four_hours(self, cursor: Any, worker_schema: str) -> None:
        young = make_job(locked_by="pool-1", locked_at=minutes_ago(239), attempts=1)
        old = make_job(locked_by="pool-1", locked_at=minutes_ago(241), attempts=1)
        assert self.recover(cursor, worker_schema).job_ids == ()
        assert rescue.release_stale_locks(cursor, schema=worker_schema) == (1, 0, ())
        stored = row(cursor, old, worker_schema)
        kept = row(cursor, young, worker_schema)
        assert stored is not None
        assert kept is not None
        assert (stored["locked_by"], stored["attempts"]) == (None, 1)
        assert stored["last_error"] == "The worker pool-1 had held this job for 4.0 hours and was taken for dead."
        assert kept["locked_by"] == "pool-1"

    def test_tells_the_jobs_of_strangers_that_have_no_attempt_left(self, cursor: Any, worker_schema: str) -> None:
        held: dict[str, Any] = {"locked_by": "pool-1", "locked_at": minutes_ago(300), "attempts": 2}
        held["updated_at"] = minutes_ago(400)
        more, last = make_job(max_attempts=3, **held), make_job("doomed", max_attempts=2, **held)
        cancelled = make_job(max_attempts=2, last_error="as it was", **(held | {"updated_at": minutes_ago(200)}))
        jobs, queues, ((job, seconds),) = rescue.release_stale_locks(cursor, schema=worker_schema)
        assert (jobs, queues) == (3, 0)
        assert (job.id, job.task_identifier, job.locked_by) == (last, "doomed", "pool-1")
        assert 5 * 3600 <= seconds < 5 * 3600 + 60
        assert "pool-1 had held this job for 5.0 hours" in str(job.last_error)
        stored = [row(cursor, job_id, worker_schema) or {} for job_id in (more, last, cancelled)]
        assert [(each["locked_by"], each["is_available"]) for each in stored] == [
            (None, True),
            (None, False),
            (None, False),
        ]
        assert stored[-1]["last_error"] == "as it was"

    def test_the_third_death_costs_the_attempt(self, cursor: Any, worker_schema: str) -> None:
        job_id = make_job()
        attempts = []
        for number in range(4):
            holder = f"{workers.WORKER_PREFIX}{number}"
            workers.register_worker(cursor, holder, {}, schema=worker_schema, now=minutes_ago(10))
            cursor.execute(
                f"""update "{worker_schema}"._private_jobs
                set locked_by = %s, locked_at = now(), attempts = attempts + 1""",
                [holder],
            )
            self.recover(cursor, worker_schema)
            stored = row(cursor, job_id, worker_schema)
            assert stored is not None
            attempts.append(stored["attempts"])
        assert attempts == [0, 0, 1, 2]

    def test_tells_the_jobs_that_have_no_attempt_left(self, cursor: Any, worker_schema: str) -> None:
        last = make_job("doomed", max_attempts=1, payload={"a": 1}, queue_name="q")
        more = make_job(max_attempts=2)
        told = []
        for number in range(3):
            holder = f"{workers.WORKER_PREFIX}{number}"
            workers.register_worker(cursor, holder, {}, schema=worker_schema, now=minutes_ago(10))
            cursor.execute(
                f"""update "{worker_schema}"._private_jobs
                set locked_by = %s, locked_at = now() - interval '90 seconds', attempts = attempts + 1,
                    updated_at = now() - interval '90 seconds'""",
                [holder],
            )
            recovered = self.recover(cursor, worker_schema)
            assert set(recovered.job_ids) == {last, more}
            told.append(recovered.exhausted)
        first, second, ((job, seconds),) = told
        assert (first, second) == ((), ())
        assert (job.id, job.task_identifier, job.queue_name, job.payload) == (last, "doomed", "q", {"a": 1})
        assert (job.attempts, job.max_attempts, job.locked_by) == (1, 1, holder)
        assert job.locked_at is not None
        assert 90 <= seconds < 100
        assert "3 times" in str(job.last_error)

    def test_a_cancelled_job_stays_cancelled(
        self, dead: str, claim: Callable[..., Claimed], cursor: Any, worker_schema: str
    ) -> None:
        job_id = make_job(key="k")
        claim()
        cursor.execute(f"""select "{worker_schema}".remove_job('k')""")
        recovered = self.recover(cursor, worker_schema)
        assert (recovered.job_ids, recovered.exhausted) == ((job_id,), ())
        stored = row(cursor, job_id, worker_schema)
        assert stored is not None
        assert not stored["is_available"]

    def test_a_long_job_is_never_stale_while_its_worker_lives(
        self, claim: Callable[..., Claimed], cursor: Any, worker_schema: str
    ) -> None:
        workers.register_worker(cursor, WORKER_ID, {}, schema=worker_schema)
        job_id = make_job(key="k")
        claim()
        cursor.execute(
            f"""update "{worker_schema}"._private_jobs set locked_at = now() - interval '5 hours',
            updated_at = now() - interval '6 hours'"""
        )
        workers.renew_claims(cursor, WORKER_ID, schema=worker_schema)
        stored = row(cursor, job_id, worker_schema)
        assert stored is not None
        assert stored["locked_at"] > minutes_ago(1)
        assert stored["updated_at"] < stored["locked_at"]


class TestManyWorkersAtOnce:
    @pytest.fixture
    def claim_at_once(
        self, raw_connection: Callable[..., Any], worker_schema: str, transactional_db: None
    ) -> Callable[..., Iterator[Claimed]]:
        """Three workers claim, one after the other, and none of them commits."""

        def claim(*tasks: str, **options: Any) -> Iterator[Claimed]:
            parameters: dict[str, Any] = {"schema": worker_schema, "max_queues": 2} | options
            task_ids = [make_task(task) for task in tasks]
            for holder in ("w0", "w1", "w2"):
                cursor = raw_connection(autocommit=False).cursor()
                yield claims.claim_jobs(cursor, holder=holder, task_ids=task_ids, **parameters)

        return claim

    def test_what_somebody_is_taking_makes_room_for_the_next_in_line(
        self, claim_at_once: Callable[..., Iterator[Claimed]]
    ) -> None:
        jobs = [make_job() for _ in range(6)]
        taken = [ids(each) for each in claim_at_once("task", max_jobs=2, stretch=1)]
        assert taken == [jobs[:2], jobs[2:4], jobs[4:]]

    def test_each_job_is_claimed_once(self, claim_at_once: Callable[..., Iterator[Claimed]]) -> None:
        for number in range(60):
            make_job("a" if number % 2 else "b", queue_name=None if number % 3 else f"q{number % 5}")
        seen: list[int] = []
        for claimed in claim_at_once("a", "b", max_jobs=15, stretch=3):
            # Nobody has committed: the others step over what is being taken.
            assert len(claimed.claims) >= 15
            seen += ids(claimed)
        assert len(seen) == len(set(seen))
