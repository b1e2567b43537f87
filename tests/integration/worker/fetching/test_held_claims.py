"""Claims that are lost: with the lease, or with the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from django_graphile_worker import registry, remove_job
from django_graphile_worker.models import Job, JobQueue
from django_graphile_worker.sql import releases
from django_graphile_worker.sql.claims import Claim, Claimed
from django_graphile_worker.sql.results import ResultStatus
from django_graphile_worker.worker.fetching import claimer
from django_graphile_worker.worker.fetching.claimer import Claimer, FastPath
from django_graphile_worker.worker.outcomes import Succeeded
from tests.support import records
from tests.support.factories import make_job
from tests.support.stepped_worker import Build, expect_fast_claim, run_all

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]


def claim_all(worker: Any) -> list[Claim]:
    claimed: Claimed = worker.claimer.claim(max_jobs=10, max_per_queue=10)
    return claimed.claims


@pytest.mark.parametrize("way", [Claimer, FastPath])
def test_what_was_claimed_while_the_lease_was_lost_is_not_begun(
    runner: Build, monkeypatch: pytest.MonkeyPatch, wait_until: Wait, way: Any, ran: list[Any]
) -> None:
    worker = runner()
    run_all(worker, wait_until)
    if way is FastPath:
        expect_fast_claim(worker)
    else:
        worker.fast_path._is_promising = False
    make_job("quick", {"n": 1})
    claim = way.send
    claimed: list[Any] = []

    def claim_and_lose(*arguments: Any, **options: Any) -> Any:
        claimed.append(claim(*arguments, **options))
        worker.lease_lost()
        return claimed[-1]

    if way is FastPath:
        nothing = Claimed(claims=[], seconds_until_next=None, has_more=False)
        monkeypatch.setattr(Claimer, "send", lambda *arguments, **limits: nothing)
    monkeypatch.setattr(way, "send", claim_and_lose)
    worker.fetcher.step()
    wait_until(lambda: worker.pool.is_idle)
    assert [len(each.claims) for each in claimed] == [1]
    assert ran == []


def test_answer_that_was_lost__makes_the_next_claim_return_its_jobs_first(
    runner: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = runner()
    job_id = make_job("quick")
    claim = Claimer.send

    def claim_and_break(*arguments: Any, **options: Any) -> Any:
        claim(*arguments, **options)
        raise psycopg.OperationalError("the connection broke")

    monkeypatch.setattr(Claimer, "send", claim_and_break)
    with pytest.raises(psycopg.OperationalError):
        claim_all(worker)
    assert worker.held.is_in_doubt
    monkeypatch.setattr(Claimer, "send", claim)
    (again,) = claim_all(worker)
    assert (again.id, again.attempts) == (job_id, 1)


def test_removed_job_of_a_lost_claim__is_removed_in_its_result(runner: Build, worker_schema: str) -> None:
    def keeps(payload: Any) -> None: ...

    registry.task(keep_result=60)(keeps)
    worker = runner()
    job_id = make_job("keeps", key="order 4711")
    claim_all(worker)
    worker.held._known.clear()
    assert remove_job("order 4711") is not None
    worker.held.return_lost()
    assert records.results(worker_schema)[job_id].status == ResultStatus.REMOVED


def test_queue__is_not_released_by_a_search_for_lost_claims_that_saw_its_last_job_end(
    runner: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the releaser, which releases it anyway, would do so again under the next job."""
    worker = runner()
    make_job("quick", queue_name="q")
    (claim,) = claim_all(worker)
    claims_of = releases.claims_of

    def and_then_it_ends(*arguments: Any, **options: Any) -> Any:
        held = claims_of(*arguments, **options)
        worker.releaser.put(Succeeded(claim, 0.0))
        worker.releaser.step()
        return held

    monkeypatch.setattr(releases, "claims_of", and_then_it_ends)
    worker.held.return_lost()
    assert not Job.objects.exists()
    assert JobQueue.objects.get().locked_by == worker.worker_id


def test_queue_of_a_lost_claim__is_not_released_before_all_its_jobs_are_back(
    runner: Build, monkeypatch: pytest.MonkeyPatch, raw_connection: Callable[..., Any], worker_schema: str
) -> None:
    """A transaction of the site has locked the first job, so it cannot be returned yet; only this worker would."""
    monkeypatch.setattr(claimer, "SEARCH_INTERVAL", 0.0)
    worker, other, site = runner(), runner(), raw_connection(autocommit=False)
    job_ids = [make_job("quick", queue_name="q") for _ in range(2)]
    claim_all(worker)
    worker.held._known.clear()
    site.execute(f'select from "{worker_schema}"._private_jobs where id = {job_ids[0]} for update')
    worker.held.return_lost()
    assert claim_all(other) == []
    site.rollback()
    assert [claim.id for claim in claim_all(worker)] == job_ids


def test_queue_of_a_lost_claim__is_released_also_where_notifications_cannot_be_sent(
    runner: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's queue of notifications is full: that must not keep the worker from claiming."""
    worker = runner()
    job_id = make_job("quick", queue_name="q")
    claim_all(worker)
    worker.held._known.clear()

    def fail(*arguments: Any, **options: Any) -> None:
        raise psycopg.errors.ProgramLimitExceeded("too many notifications in the NOTIFY queue")

    monkeypatch.setattr(releases, "waiting_queues", fail)
    worker.held.return_lost()
    assert [claim.id for claim in claim_all(worker)] == [job_id]
