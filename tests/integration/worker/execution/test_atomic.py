"""@task(atomic=True): effects and the end of the job, both or neither, whatever is killed when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.backends.postgresql.base import DatabaseWrapper

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import Failure, complete_jobs, fail_jobs
from django_graphile_worker.worker.execution import atomic
from django_graphile_worker.worker.outcomes import CompletedAtomically, Failed, Interrupted, Outcome
from tests.conftest import RawConnection
from tests.support.backends import execute
from tests.support.factories import make_job
from tests.support.slot import TOKEN, Slot, make_claim, make_task

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def observer(raw_connection: Callable[..., RawConnection]) -> Iterator[RawConnection]:
    observer = raw_connection()
    observer.execute("create table public.effects (job_id bigint, note text)")
    yield observer
    observer.execute("drop table public.effects")


class Jobs:
    """A job in the table, claimed, run, and released as a worker would."""

    def __init__(self, slot: Slot, observer: RawConnection, schema: str) -> None:
        self.slot = slot
        self.observer = observer
        self.schema = schema
        self.id = make_job("a_task", attempts=1, locked_by=TOKEN)
        self.attempts = 1

    def run(self, function: Callable[..., Any], payload_text: str = "{}") -> Outcome:
        task_id = self.slot.task_id(make_task(function, atomic=True))
        claim = make_claim(payload_text, id=self.id, task_id=task_id, attempts=self.attempts)
        return self.slot.start_claim(claim).result(30)

    def run_until_done(self, function: Callable[..., Any], most: int = 5) -> list[Outcome]:
        """Claim and run again and again, storing failures, until the row is gone."""
        outcomes: list[Outcome] = []
        while self.exists() and len(outcomes) < most:
            outcome = self.run(function)
            outcomes.append(outcome)
            if isinstance(outcome, Failed):
                self._store_failure(outcome.claim, outcome)
                self._claim_again()
        return outcomes

    def _store_failure(self, claim: Claim, outcome: Failed) -> None:
        with self.observer.cursor() as cursor:
            fail_jobs(cursor, [Failure(claim=claim, error=outcome.error)], schema=self.schema)

    def _claim_again(self) -> None:
        self.attempts += 1
        self.observer.execute(
            f'update "{self.schema}"._private_jobs set locked_by = %s, locked_at = now(), attempts = %s where id = %s',
            [TOKEN, self.attempts, self.id],
        )

    def exists(self) -> bool:
        found = self.observer.execute(f'select 1 from "{self.schema}"._private_jobs where id = %s', [self.id])
        return found.fetchone() is not None

    def effects(self) -> int:
        (count,) = self.observer.execute("select count(*) from public.effects where job_id = %s", [self.id]).fetchone()  # type: ignore[misc]
        return int(count)

    def write(self, payload: Any = None) -> None:
        with connection.cursor() as cursor:
            cursor.execute("insert into public.effects values (%s)", [self.id])


@pytest.fixture
def jobs(slot: Slot, observer: RawConnection, worker_schema: str) -> Jobs:
    return Jobs(slot, observer, worker_schema)


def kill_connection(observer: RawConnection) -> None:
    """End the server process behind Django's connection of this thread, and wait until it is gone."""
    pid = connection.connection.info.backend_pid
    observer.execute("select pg_terminate_backend(%s, 10000)", [pid])


def test_success__deletes_the_job_with_the_effects(jobs: Jobs) -> None:
    assert isinstance(jobs.run(jobs.write), CompletedAtomically)
    assert (jobs.effects(), jobs.exists()) == (1, False)


def test_effects_and_end__are_one_transaction(jobs: Jobs) -> None:
    seen: list[Any] = []

    def looks(payload: Any) -> None:
        jobs.write()
        transaction.on_commit(lambda: seen.append((jobs.effects(), jobs.exists())))
        seen.append((jobs.effects(), jobs.exists()))

    jobs.run(looks)
    assert seen == [(0, True), (1, False)]


def test_failure__leaves_neither(jobs: Jobs) -> None:
    def breaks(payload: Any) -> None:
        jobs.write()
        raise ValueError("boom")

    assert isinstance(jobs.run(breaks), Failed)
    assert (jobs.effects(), jobs.exists()) == (0, True)


def test_error_that_the_task_swallowed__is_still_a_failure(jobs: Jobs) -> None:
    def swallows(payload: Any) -> None:
        jobs.write()
        with pytest.raises(IntegrityError):
            with connection.cursor() as cursor:
                cursor.execute("insert into django_content_type (app_label) values (null)")

    assert isinstance(jobs.run(swallows), Failed)
    assert (jobs.effects(), jobs.exists()) == (0, True)


def test_constraint_that_fails_at_commit__is_a_failure(jobs: Jobs, observer: RawConnection) -> None:
    observer.execute("alter table public.effects add unique (job_id) deferrable initially deferred")

    def twice(payload: Any) -> None:
        jobs.write()
        jobs.write()

    outcome = jobs.run(twice)
    assert isinstance(outcome, Failed)
    assert "IntegrityError" in outcome.error
    assert "cannot tell" not in outcome.error
    assert (jobs.effects(), jobs.exists()) == (0, True)


@pytest.mark.parametrize(
    "theft",
    ["locked_by = 'somebody-else'", "locked_by = null, locked_at = null", "locked_by = 'django-worker-of-the-test/2'"],
)
def test_lost_claim__rolls_everything_back(jobs: Jobs, observer: RawConnection, worker_schema: str, theft: str) -> None:
    def robbed(payload: Any) -> None:
        jobs.write()
        observer.execute(f'update "{worker_schema}"._private_jobs set {theft}'.encode())

    assert isinstance(jobs.run(robbed), Interrupted)
    assert (jobs.effects(), jobs.exists()) == (0, True)


def test_cancelled_job__may_still_end(jobs: Jobs, observer: RawConnection, worker_schema: str) -> None:
    def cancelled(payload: Any) -> None:
        jobs.write()
        observer.execute(
            f'update "{worker_schema}"._private_jobs set key = null, attempts = max_attempts,'
            " updated_at = greatest(clock_timestamp(), locked_at + interval '1 microsecond')"
        )

    assert isinstance(jobs.run(cancelled), CompletedAtomically)
    assert (jobs.effects(), jobs.exists()) == (1, False)


def test_hook_that_fails_after_the_commit__does_not_fail_the_job(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    def hooks(payload: Any) -> None:
        jobs.write()
        transaction.on_commit(lambda: 1 // 0)

    assert isinstance(jobs.run(hooks), CompletedAtomically)
    assert (jobs.effects(), jobs.exists()) == (1, False)
    assert "an on_commit hook failed" in caplog.text


def test_role_left_changed__cannot_fail_what_is_committed_and_never_reaches_the_next(
    jobs: Jobs, slot: Slot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    seen: list[Any] = []

    def careless(payload: Any) -> None:
        jobs.write()
        # In the transaction, the other role could not complete the job.
        transaction.on_commit(lambda: execute("SET ROLE pg_monitor"))

    def looks(payload: Any, helpers: Any) -> None:
        seen.extend(helpers.query("select current_setting('role') as value"))

    assert isinstance(jobs.run(careless), CompletedAtomically)
    assert (jobs.effects(), jobs.exists()) == (1, False)
    assert "its role changed" in caplog.text
    slot.run(looks)
    assert seen == [{"value": "none"}]


def test_batch_with_a_failed_item__is_tried_again_as_a_whole(jobs: Jobs) -> None:
    def half(payload: list[Any]) -> list[Any]:
        jobs.write()
        return [None, ValueError("two")]

    outcome = jobs.run(half, "[1, 2]")
    assert isinstance(outcome, Failed)
    assert outcome.payload_text is None
    assert (jobs.effects(), jobs.exists()) == (0, True)


# Each kill strikes the first run only; a job is then tried again until its row is gone.


def killed_before_the_effect(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    strikes = iter([True])

    def task(payload: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("select 1")
        if next(strikes, False):
            kill_connection(jobs.observer)
        jobs.write()

    return task


def killed_after_the_effect(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    strikes = iter([True])

    def task(payload: Any) -> None:
        jobs.write()
        if next(strikes, False):
            kill_connection(jobs.observer)

    return task


def killed_after_the_delete(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    strikes = iter([True])
    complete = complete_jobs

    def complete_and_die(*args: Any, **kwargs: Any) -> set[int]:
        answer = complete(*args, **kwargs)
        if next(strikes, False):
            kill_connection(jobs.observer)
        return answer

    monkeypatch.setattr(atomic, "complete_jobs", complete_and_die)
    return jobs.write


def killed_within_the_commit(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The server dies in COMMIT itself: a trigger that is deferred until then ends its own process."""
    strikes = iter([True])
    jobs.observer.execute(
        "create function public.die() returns trigger language plpgsql as"
        " $$ begin perform pg_terminate_backend(pg_backend_pid()); perform pg_sleep(10); return null; end $$"
    )

    def task(payload: Any) -> None:
        jobs.write()
        if next(strikes, False):
            with connection.cursor() as cursor:
                cursor.execute(
                    "create constraint trigger dies after insert on public.effects"
                    " deferrable initially deferred for each row execute function public.die()"
                )
                jobs.write()

    return task


def killed_before_the_answer_to_commit(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The COMMIT happens, and its answer is lost."""
    strikes = iter([True])
    commit = DatabaseWrapper._commit  # type: ignore[attr-defined]

    def commit_and_die(wrapper: Any) -> None:
        commit(wrapper)
        if next(strikes, False):
            kill_connection(jobs.observer)
            raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(DatabaseWrapper, "_commit", commit_and_die)
    return jobs.write


@pytest.mark.parametrize(
    ("kill", "runs"),
    [
        (killed_before_the_effect, [Failed, CompletedAtomically]),
        (killed_after_the_effect, [Failed, CompletedAtomically]),
        (killed_after_the_delete, [Failed, CompletedAtomically]),
        (killed_within_the_commit, [Failed, CompletedAtomically]),
        (killed_before_the_answer_to_commit, [Failed]),
    ],
)
def test_effects_happen_exactly_once__wherever_the_connection_is_killed(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, kill: Callable[..., Any], runs: list[type]
) -> None:
    task = kill(jobs, monkeypatch)
    try:
        outcomes = jobs.run_until_done(task)
    finally:
        jobs.observer.execute("drop function if exists public.die() cascade")
    assert [type(outcome) for outcome in outcomes] == runs
    assert (jobs.effects(), jobs.exists()) == (1, False)
