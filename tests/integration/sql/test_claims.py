"""Claims: what is taken, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection

from django_graphile_worker.sql import claims
from django_graphile_worker.sql.claims import Claimed
from tests.support.factories import make_failed_job, make_job, make_queue, make_task, minutes_ago

pytestmark = pytest.mark.django_db

WORKER_ID = "django-worker-1"
WORKER, OTHER = f"{WORKER_ID}/1", "django-worker-2/1"


@pytest.fixture
def cursor() -> Any:
    with connection.cursor() as cursor:
        yield cursor


@pytest.fixture(params=["few jobs in all", "a crowd"])
def claim(request: pytest.FixtureRequest, cursor: Any, worker_schema: str) -> Callable[..., Claimed]:
    """A claim reads all jobs, or finds its own among many others."""
    if request.param == "a crowd":
        cursor.execute(
            f"""insert into "{worker_schema}"._private_jobs (task_id, priority)"""
            " select %s, -9 from generate_series(1, 60)",
            [make_task("the crowd's")],
        )

    def claim(*tasks: str, **options: Any) -> Claimed:
        parameters: dict[str, Any] = {"token": WORKER, "max_jobs": 100, "max_per_queue": 10} | options
        task_ids = [make_task(task) for task in tasks or ("task",)]
        return claims.claim_jobs(cursor, schema=worker_schema, task_ids=task_ids, **parameters)

    return claim


def ids(claimed: Claimed) -> list[int]:
    return [claim.id for claim in claimed.claims]


def take_all(claim: Callable[..., Claimed], **options: Any) -> list[int]:
    """Claim until nothing is left, each time behind the place of the last claim."""
    claimed = claim(**options)
    found = ids(claimed)
    while claimed.has_more:
        claimed = claim(**options, behind=claimed.continuation)
        found += ids(claimed)
    return found


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

    def test_forbidden_flags_are_stepped_over(self, claim: Callable[..., Claimed]) -> None:
        make_job(flags={"heavy": True})
        make_job(flags={"heavy": True, "eu": True})
        allowed = make_job(flags={"eu": True})
        plain = make_job()
        queued = make_job(flags={"heavy": True}, queue_name="q")
        claimed = claim(forbidden_flags=["heavy"])
        assert set(ids(claimed)) == {allowed, plain}
        assert queued not in ids(claimed)

    def test_a_queued_job_behind_a_forbidden_job_is_found(self, claim: Callable[..., Claimed]) -> None:
        make_job(flags={"heavy": True}, queue_name="q", run_at=minutes_ago(5))
        allowed = make_job(queue_name="q")
        assert ids(claim(forbidden_flags=["heavy"])) == [allowed]

    def test_queued_jobs_beside_forbidden_jobs_are_counted_once(self, claim: Callable[..., Claimed]) -> None:
        make_job(flags={"heavy": True}, queue_name="q", run_at=minutes_ago(9))
        allowed = [make_job(queue_name="q", run_at=minutes_ago(8 - number)) for number in range(3)]
        assert ids(claim(forbidden_flags=["heavy"], max_jobs=3)) == allowed

    def test_each_queued_job_has_the_name_of_its_queue(self, claim: Callable[..., Claimed]) -> None:
        names = ["plain", 'with "quotes" and \\', "größer", "with\na line", "null"]
        expected = {make_job(queue_name=name): name for name in names for _ in range(2)} | {make_job(): None}
        assert {each.id: each.queue_name for each in claim().claims} == expected

    def test_returns_when_the_next_job_falls_due(self, claim: Callable[..., Claimed]) -> None:
        make_job(run_at=minutes_ago(-30))
        make_job(run_at=minutes_ago(-10), priority=7, queue_name="q")
        make_job("unknown", run_at=minutes_ago(-1))
        claimed = claim()
        assert claimed.claims == []
        assert claimed.seconds_until_next == pytest.approx(600, abs=5)

    def test_returns_none_when_nothing_is_scheduled(self, claim: Callable[..., Claimed]) -> None:
        claimed = claim()
        assert (claimed.claims, claimed.seconds_until_next, claimed.has_more) == ([], None, False)

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


class TestPayloadSizes:
    """The payloads of a claim have a limited size together; the first job is claimed whatever its size."""

    @pytest.mark.parametrize(
        "payload", ["x" * 3000, "".join(f"{n:x}" for n in range(800))], ids=["compressed", "plain"]
    )
    @pytest.mark.parametrize("tasks", [("a",), ("a", "b")], ids=["one task", "two tasks"])
    def test_jobs_without_a_queue(self, claim: Callable[..., Claimed], payload: str, tasks: tuple[str, ...]) -> None:
        payload = (payload * 2)[:3000]
        jobs = [make_job(tasks[n % len(tasks)], {"x": payload}, run_at=minutes_ago(20 - n)) for n in range(10)]
        claimed = claim(*tasks, max_bytes=10_000)
        assert ids(claimed) == jobs[:3]
        assert claimed.has_more

    def test_jobs_of_queues(self, claim: Callable[..., Claimed], cursor: Any, worker_schema: str) -> None:
        first = [make_job("a", {"x": "y" * 3000}, queue_name="a", run_at=minutes_ago(60 - n)) for n in range(10)]
        second = [make_job("a", {"x": "y" * 3000}, queue_name="b", run_at=minutes_ago(30 - n)) for n in range(10)]
        claimed = claim("a", max_bytes=10_000)
        assert ids(claimed) == first[:3]
        assert claimed.has_more
        # A queue of which no job fits is not held.
        cursor.execute(f'select queue_name from "{worker_schema}"._private_job_queues where locked_by is not null')
        assert cursor.fetchall() == [("a",)]
        assert ids(claim("a", max_bytes=10_000, behind=claimed.continuation)) == second[:3]

    def test_the_first_job_is_claimed_whatever_its_size(self, claim: Callable[..., Claimed]) -> None:
        jobs = [make_job(payload={"x": "y" * 3000}, run_at=minutes_ago(9 - n)) for n in range(2)]
        claimed = claim(max_bytes=1)
        assert ids(claimed) == jobs[:1]
        assert claimed.has_more


class TestQueues:
    def test_a_queue_is_taken_in_order(self, claim: Callable[..., Claimed], cursor: Any, worker_schema: str) -> None:
        third = make_job("a", queue_name="q", run_at=minutes_ago(1))
        first = make_job("b", queue_name="q", run_at=minutes_ago(9))
        second = make_job("a", queue_name="q", run_at=minutes_ago(5))
        assert ids(claim("a", "b", max_per_queue=3)) == [first, second, third]
        cursor.execute(f'select locked_by from "{worker_schema}"._private_job_queues')
        assert cursor.fetchone() == (WORKER,)

    def test_later_priorities_of_a_queue_have_their_turn_with_other_jobs(self, claim: Callable[..., Claimed]) -> None:
        for number in range(5):
            make_job(queue_name="q", priority=9, run_at=minutes_ago(30 - number))
        first = make_job(queue_name="q")
        others = [make_job(priority=1) for _ in range(5)]
        assert ids(claim(max_jobs=6)) == [first, *others]

    def test_no_other_worker_gets_a_job_of_a_held_queue(self, claim: Callable[..., Claimed]) -> None:
        for _ in range(5):
            make_job(queue_name="q")
        assert len(claim(max_per_queue=2).claims) == 2
        assert claim(token=OTHER).claims == []
        assert claim().claims == []

    def test_a_queue_that_another_worker_holds_is_left_alone(self, claim: Callable[..., Claimed]) -> None:
        make_queue("busy", locked_by="pool-node")
        make_job(queue_name="busy", run_at=minutes_ago(5))
        free = make_job(queue_name="free")
        assert ids(claim()) == [free]

    def test_steps_over_held_queues_do_not_leave_behind_what_a_full_claim_could_not_take(
        self, claim: Callable[..., Claimed]
    ) -> None:
        for name in ("free 1", "free 2", "free 3"):
            make_queue(name)
        held = [f"held {number}" for number in range(5)]
        for name in held:
            make_queue(name, locked_by=OTHER)
        for number in range(150):
            make_job(queue_name=held[number % 5], run_at=minutes_ago(9))
        hidden = [make_job(queue_name=f"free {number}", run_at=minutes_ago(8)) for number in (1, 2, 3)]
        assert take_all(claim, max_jobs=1) == hidden

    def test_what_stands_behind_held_queues_and_forbidden_flags_is_found(self, claim: Callable[..., Claimed]) -> None:
        for number in range(40):
            make_queue(f"held {number}", locked_by=OTHER)
        for number in range(160):
            make_job(queue_name=f"held {number % 40}", run_at=minutes_ago(9))
        for number in range(60):
            make_job(flags={"paused": True, f"customer {number}": True}, run_at=minutes_ago(9))
        hidden = [make_job(flags={"free": True}, run_at=minutes_ago(8)) for _ in range(3)]
        assert take_all(claim, max_jobs=1, forbidden_flags=["paused"]) == hidden

    def test_a_free_queue_is_found_behind_held_queues_and_before_a_backlog(self, claim: Callable[..., Claimed]) -> None:
        """Claims that are full with other jobs do not keep it waiting."""
        for number in range(3):
            make_queue(f"held {number}", locked_by=OTHER)
        for number in range(150):
            make_job(queue_name=f"held {number % 3}", run_at=minutes_ago(60))
        hidden = make_job(queue_name="free", run_at=minutes_ago(8))
        others = [make_job(run_at=minutes_ago(5)) for _ in range(5)]
        assert ids(claim(max_jobs=3)) == [hidden, *others[:2]]

    def test_no_more_jobs_of_queues_than_asked_for(self, claim: Callable[..., Claimed]) -> None:
        for number in range(30):
            make_job(queue_name=f"q{number % 3}", run_at=minutes_ago(60 - number))
        claimed = claim(max_jobs=7, max_per_queue=100)
        assert len(claimed.claims) == 7
        assert claimed.has_more

    def test_future_jobs_of_a_queue_wait(self, claim: Callable[..., Claimed]) -> None:
        make_job(queue_name="q", run_at=minutes_ago(-5), priority=-10)
        due = make_job(queue_name="q")
        assert ids(claim()) == [due]


class TestManyWorkersAtOnce:
    @pytest.fixture
    def claim_at_once(
        self, raw_connection: Callable[..., Any], worker_schema: str, transactional_db: None
    ) -> Callable[..., Iterator[Claimed]]:
        """Three workers claim, one after the other, and none of them commits."""

        def claim(*tasks: str, **options: Any) -> Iterator[Claimed]:
            parameters: dict[str, Any] = {"schema": worker_schema} | options
            task_ids = [make_task(task) for task in tasks]
            for token in ("w0", "w1", "w2"):
                cursor = raw_connection(autocommit=False).cursor()
                yield claims.claim_jobs(cursor, token=token, task_ids=task_ids, **parameters)

        return claim

    def test_jobs_that_another_claim_has_locked_make_room_for_the_next(
        self, claim_at_once: Callable[..., Iterator[Claimed]]
    ) -> None:
        jobs = [make_job() for _ in range(6)]
        taken = [ids(each) for each in claim_at_once("task", max_jobs=2, max_per_queue=1)]
        assert taken == [jobs[:2], jobs[2:4], jobs[4:]]

    def test_each_job_is_claimed_once(self, claim_at_once: Callable[..., Iterator[Claimed]]) -> None:
        for number in range(60):
            make_job("a" if number % 2 else "b", queue_name=None if number % 3 else f"q{number % 5}")
        seen: list[int] = []
        for claimed in claim_at_once("a", "b", max_jobs=15, max_per_queue=3):
            # No claim has committed: the other claims skip the rows that it has locked.
            assert len(claimed.claims) >= 15
            seen += ids(claimed)
        assert len(seen) == len(set(seen))
