"""From ``manage.py runworker`` to the first job: what is done by then, and what can wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from django_graphile_worker.worker.fetching.fetcher import Fetcher
from django_graphile_worker.worker.service import Service
from tests.support import records
from tests.support.stepped_worker import build, own_tasks


@pytest.mark.django_db(transaction=True)
def test_the_part_that_claims_starts_before_those_that_can_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    started: dict[str, float] = {}
    for kind in (Service, Fetcher):
        monkeypatch.setattr(kind, "start", lambda service, after=0.0: started.setdefault(service.name, after))
    with own_tasks() as registry:
        runner = build(registry)
        runner.start()
        # The first step of the releaser, on its thread, opens its session: the first claim does not wait for that.
        sessions = [runner.worker.release_database.current]
        runner.worker.releaser.step()
        sessions.append(runner.worker.release_database.current)
        runner.close()
    assert [session is not None for session in sessions] == [False, True]
    assert next(iter(started)) == "fetcher"
    assert {"signal-sender", "releaser", "heartbeat", "recovery"} <= set(started)
    # Only the recovery can wait even until the first jobs have run.
    assert [name for name, after in started.items() if after] == ["recovery"]


@pytest.mark.django_db(transaction=True)
def test_the_day_of_the_history_is_there_before_the_first_job_is_claimed(
    monkeypatch: pytest.MonkeyPatch, worker_schema: str
) -> None:
    """A row that is on its way into the default partition is refused when the day comes into being."""
    days: list[bool] = []

    def note_day(fetcher: Fetcher) -> None:
        with connection.cursor() as cursor:
            table = f'"{worker_schema}"._private_history_{datetime.now(UTC):%Y%m%d}'
            cursor.execute("select to_regclass(%s) is not null", [table])
            days.extend(cursor.fetchone() or ())

    monkeypatch.setattr(Service, "start", lambda service, **options: None)
    monkeypatch.setattr(Fetcher, "start", note_day)
    with own_tasks() as registry:
        runner = build(registry, history=timedelta(days=1))
        runner.start()
        runner.close()
    records.drop_days(worker_schema)
    assert days[0]
