"""Rows that PostgreSQL can hold and Python cannot: each fails alone, and its failure can be stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_graphile_worker import RetryLater
from django_graphile_worker.sql.claims import Claim, claim_jobs
from django_graphile_worker.sql.releases import Failure, complete_jobs, fail_jobs
from django_graphile_worker.worker.outcomes import Failed, Outcome, Succeeded
from tests.conftest import RawConnection
from tests.support.factories import TOO_DEEP, make_task
from tests.support.slot import TOKEN, Slot

pytestmark = pytest.mark.django_db(transaction=True)

UNREADABLE = {
    "deep": f"'{TOO_DEEP}'",
    "long integer": "repeat('9', 5000)",
    "long integer in an array": "'[' || repeat('9', 5000) || ', 1]'",
}
READABLE = {
    "escaped NUL": r"""'"\u0000"'""",
    "half a surrogate pair": r"""'"\ud800"'""",
    "beyond float": "'1e400'",
    "same key twice": """'{"a": 1, "a": 2}'""",
    "null": "'null'",
    "scalar": "'1'",
    "white space": """E' \\n{"a": 1}\\t '""",
}


class Queue:
    """The jobs of one task: inserted by SQL, claimed, run and released like a worker's."""

    def __init__(self, slot: Slot, database: RawConnection, schema: str) -> None:
        self.slot = slot
        self.database = database
        self.schema = schema
        self.task_id = make_task("a_task")

    def insert(self, payload: str = "'{}'", run_at: str = "now()") -> int:
        row = self.database.execute(
            f'insert into "{self.schema}"._private_jobs (task_id, payload, run_at)'
            f" values ({self.task_id}, ({payload})::json, {run_at}) returning id".encode()
        ).fetchone()
        assert row is not None
        return int(row[0])

    def run(self, function: Callable[..., Any]) -> dict[int, Outcome]:
        """Claim all that is there, run each, and store how it ended."""
        with self.database.cursor() as cursor:
            claimed = claim_jobs(
                cursor,
                schema=self.schema,
                token=TOKEN,
                task_ids=[self.task_id],
                max_jobs=100,
                max_per_queue=1,
            )
            outcomes = {claim.id: self._run(claim, function) for claim in claimed.claims}
            done = [outcome.claim for outcome in outcomes.values() if isinstance(outcome, Succeeded)]
            failures = [
                Failure(
                    claim=outcome.claim,
                    error=outcome.error,
                    delay=outcome.delay,
                    permanent=outcome.permanent,
                    payload_text=outcome.payload_text,
                )
                for outcome in outcomes.values()
                if isinstance(outcome, Failed)
            ]
            gone = complete_jobs(cursor, done, schema=self.schema)
            kept = fail_jobs(cursor, failures, schema=self.schema)
        assert {*gone, *kept} == set(outcomes)
        return outcomes

    def _run(self, claim: Claim, function: Callable[..., Any]) -> Outcome:
        return self.slot.start_claim(claim._replace(task_id=self.slot.task_id(function))).result(30)

    def last_error(self, job_id: int) -> str:
        row = self.database.execute(
            f'select last_error from "{self.schema}"._private_jobs where id = %s and locked_by is null', [job_id]
        ).fetchone()
        assert row is not None
        return str(row[0])

    def payload(self, job_id: int) -> str:
        row = self.database.execute(
            f'select payload::text from "{self.schema}"._private_jobs where id = %s', [job_id]
        ).fetchone()
        assert row is not None
        return str(row[0])


@pytest.fixture
def queue(slot: Slot, raw_connection: Callable[..., RawConnection], worker_schema: str) -> Queue:
    return Queue(slot, raw_connection(), worker_schema)


def test_unreadable_payloads__fail_alone(queue: Queue) -> None:
    bad = [queue.insert(payload) for payload in UNREADABLE.values()]
    good = [queue.insert(payload) for payload in READABLE.values()]
    outcomes = queue.run(lambda payload: None)
    assert {job_id for job_id, outcome in outcomes.items() if isinstance(outcome, Failed)} == set(bad)
    assert {job_id for job_id, outcome in outcomes.items() if isinstance(outcome, Succeeded)} == set(good)
    for job_id in bad:
        assert "Error" in queue.last_error(job_id)


@pytest.mark.parametrize("run_at", ["'-infinity'", "'4713-01-01 BC'", "'0001-01-01'"])
def test_moments_before_the_calendar__are_run(queue: Queue, run_at: str) -> None:
    years: list[int] = []
    job_id = queue.insert(run_at=run_at)
    outcomes = queue.run(lambda payload, helpers: years.append(helpers.job.run_at.year))
    assert isinstance(outcomes[job_id], Succeeded)
    assert years == [1]


@pytest.mark.parametrize(
    "message",
    [
        "a\x00b",
        "\ud800\udfff",
        "x" * 5_000_000,
        "\x1b[31mred",
        "\u202etfel",
        "",
        "\U0001f600" * 99_999,
        "\x00" * 99_999,
    ],
    ids=["NUL", "surrogates", "huge", "ANSI", "right to left", "empty", "astral", "many NULs"],
)
def test_whatever_an_error_says__it_can_be_stored(queue: Queue, message: str) -> None:
    def breaks(payload: Any) -> None:
        raise ValueError(message)

    job_id = queue.insert()
    queue.run(breaks)
    stored = queue.last_error(job_id)
    assert stored.startswith("ValueError")
    assert len(stored) <= 65_536


def test_failed_items__are_stored_as_they_were_written(queue: Queue) -> None:
    job_id = queue.insert(r"""'[1.10, "\u0000", {"b":1,"a":2}, """ + "9" * 400 + "]'")
    queue.run(lambda payload: [ValueError("one"), ValueError("two"), None, ValueError("four")])
    assert queue.payload(job_id) == r'[1.10,"\u0000",' + "9" * 400 + "]"


def test_delay_beyond_the_calendar__can_be_stored(queue: Queue) -> None:
    def later(payload: Any) -> None:
        raise RetryLater(timedelta.max)

    job_id = queue.insert()
    queue.run(later)
    assert "RetryLater" in queue.last_error(job_id)
