"""The jobs that an alarm about several lost workers suspects."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.test import Client

from django_graphile_worker.sql.events import ERROR, WARNING, NewEvent, add
from tests.support import admin_pages as pages


def lose(schema: str, number: int, **details: Any) -> None:
    worker = f"django-worker-{number}"
    with connection.cursor() as cursor:
        lost = NewEvent(kind="worker_lost", subject=f"web-{number}", severity=ERROR, worker_id=worker)
        add(cursor, lost, schema=schema)
        if details:
            recovered = NewEvent(
                kind="jobs_recovered", subject=f"web-{number}", severity=WARNING, worker_id=worker, details=details
            )
            add(cursor, recovered, schema=schema)


def test_suspect_of_any_loss__is_named(admin_page: Client, worker_schema: str) -> None:
    lose(worker_schema, 1, jobs=1, suspected_ids=[])
    lose(worker_schema, 2, jobs=1, suspected_ids=[399601])
    lose(worker_schema, 3, jobs=2, suspected_ids=[399601, 7], exhausted_ids=[8])
    # The jobs of the last one were force-unlocked.
    lose(worker_schema, 4)
    found = admin_page.get(pages.OVERVIEW).context
    causes = [str(each.cause) for each in [*found["problems"], *found["more_problems"]]]
    (cause,) = [each for each in causes if "lost <bdi>4</bdi> times" in each]
    assert [cause.count(f"#{job}<") for job in (399601, 7, 8)] == [1, 1, 1]
