"""How a verb reads the queue."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError
from django.test import override_settings

from django_graphile_worker.sql.inspection import job_list
from tests.support.operating import execute, operate

pytestmark = pytest.mark.django_db


def test_statement__that_takes_too_long_is_ended_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(cursor: Any, *args: Any, **options: Any) -> None:
        cursor.execute("select pg_sleep(60)")

    monkeypatch.setattr(job_list, "list_jobs", sleep)
    with_little_time = settings.GRAPHILE_WORKER | {"ADMIN_STATEMENT_TIMEOUT": 0.1}
    with (
        override_settings(GRAPHILE_WORKER=with_little_time),
        pytest.raises(CommandError, match=r"within 0.1 seconds.*--limit"),
    ):
        operate("jobs")


def test_reading__leaves_the_session_as_it_was() -> None:
    changeable = "select name, setting from pg_settings where context = 'user' order by name"
    before = execute(changeable)
    operate("jobs")
    assert execute(changeable) == before
