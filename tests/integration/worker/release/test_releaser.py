"""The releaser, stepped on a real database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from django_graphile_worker import signals
from django_graphile_worker.models import Job
from tests.conftest import WAIT_TIMEOUT
from tests.support.factories import make_job
from tests.support.stepped_worker import Build, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)

Wait = Callable[..., None]

ran: list[Any] = []


def quick(payload: Any) -> None:
    ran.append(payload.get("n"))


def failing(payload: Any) -> None:
    raise ValueError("It does not work")


@pytest.fixture
def runner() -> Iterator[Build]:
    ran.clear()
    with stepped_workers(quick, failing) as make:
        yield make


def test_a_row_that_the_site_is_changing_delays_no_other(
    runner: Build, wait_until: Wait, raw_connection: Callable[..., Any], worker_schema: str
) -> None:
    held = make_job("quick", {"n": 0})
    make_job("quick", {"n": 1})
    worker = runner()
    worker.fetcher.step()
    wait_until(lambda: worker.pool.is_idle)
    other = raw_connection(autocommit=False)
    other.execute(f'select from "{worker_schema}"._private_jobs where id = {held} for update'.encode())
    assert worker.releaser.step() > 0
    assert list(Job.objects.values_list("id", flat=True)) == [held]
    other.rollback()
    worker.releaser.step()
    assert not Job.objects.exists()


def test_a_lost_claim_is_reported_once_and_changes_nothing(
    runner: Build, wait_until: Wait, raw_connection: Callable[..., Any], worker_schema: str
) -> None:
    make_job("quick", {"n": 1})
    worker = runner()
    lost: list[Any] = []

    def hear(job: Any, **kwargs: Any) -> None:
        lost.append(job.id)

    signals.claim_lost.connect(hear)
    worker.fetcher.step()
    wait_until(lambda: worker.pool.is_idle)
    job_id = Job.objects.get().id
    raw_connection().execute(
        f'update "{worker_schema}"._private_jobs set locked_by = %s'.encode(), ["django-worker-other/1"]
    )
    worker.releaser.step()
    worker.signal_sender.step()
    signals.claim_lost.disconnect(hear)
    assert lost == [job_id]
    assert Job.objects.get().locked_by == "django-worker-other"
    assert worker.releaser.pending_count == 0


def test_survives_its_connection_and_reports_no_claim_lost_that_it_had_released(
    runner: Build, wait_until: Wait, raw_connection: Callable[..., Any]
) -> None:
    for number in range(3):
        make_job("quick", {"n": number})
    worker = runner()
    worker.fetcher.step()
    wait_until(lambda: worker.pool.is_idle)
    database = worker.releaser._statements._database
    pid = database.connection().info.backend_pid
    raw_connection().execute("select pg_terminate_backend(%s)", [pid])
    with pytest.raises(psycopg.OperationalError):
        worker.releaser.step()
    assert worker.releaser.pending_count == 3
    worker.releaser.step()
    assert worker.releaser.pending_count == 0
    assert not Job.objects.exists()


def test_a_job_that_is_added_while_a_queue_is_being_released_is_seen(
    runner: Build,
    wait_until: Wait,
    raw_connection: Callable[..., Any],
    worker_schema: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its notification came while the queue was held: only the release can tell of it."""
    make_job("quick", {}, queue_name="q")
    worker = runner()
    worker.fetcher.step()
    wait_until(lambda: worker.pool.is_idle)
    freed: list[set[int]] = []
    monkeypatch.setattr(worker, "queues_freed", freed.append)
    site, observer = raw_connection(autocommit=False), raw_connection()
    site.execute(f'select from "{worker_schema}"._private_job_queues for update'.encode())
    release = threading.Thread(target=worker.releaser.step)
    release.start()
    blocked = "select count(*) from pg_stat_activity where %s = any (pg_blocking_pids(pid))"
    wait_until(lambda: observer.execute(blocked, [site.info.backend_pid]).fetchone() == (1,))
    make_job("quick", {}, queue_name="q")
    site.rollback()
    release.join(WAIT_TIMEOUT)
    assert len(freed) == 1
