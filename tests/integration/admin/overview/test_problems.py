"""The problems that the overview reports."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client

from django_graphile_worker.admin.overview import problems
from django_graphile_worker.sql import events
from django_graphile_worker.sql.inspection import overview
from tests.support import admin_pages as pages
from tests.support.admin_pages import make_worker, text
from tests.support.factories import make_job, minutes_ago


@pytest.mark.parametrize(
    ("metadata", "silent", "warning"),
    [
        (None, 0, "Jobs are ready, but no worker is running."),
        ({"tasks": ["other"]}, 1, "No worker has the tasks of some ready jobs: send."),
        ({"tasks": ["send"]}, 300, "Worker lost: django-worker-1 (no heartbeat for 5 min)."),
        ({"tasks": ["send"], "is_listening": False}, 1, "Polling instead of listening: django-worker-1."),
    ],
)
def test_problems_name_their_cause(
    admin_page: Client, metadata: dict[str, Any] | None, silent: float, warning: str
) -> None:
    make_job("send")
    if metadata is not None:
        make_worker("django-worker-1", silent=silent, **metadata)
    assert warning in text(admin_page.get(pages.OVERVIEW))


def test_an_old_lock_of_an_unregistered_worker_is_reported(admin_page: Client) -> None:
    make_job("send", locked_by="node-worker", locked_at=minutes_ago(90.5))
    assert "node-worker has held a lock for 1 h 30 min" in text(admin_page.get(pages.OVERVIEW))


def test_no_problem_is_reported_when_all_is_well(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # The clock of the database is that of the beginning of the test.
    monkeypatch.setattr(problems, "CLOCK_DIFFERENCE", 60.0)
    make_job("send")
    make_worker("django-worker-1", tasks=["send"], is_listening=True)
    make_worker("django-worker-2", tasks=["send"], listens=False, is_listening=False)
    found = admin_page.get(pages.OVERVIEW).context["problems"]
    # What other tests do to the same database is not what is tested here.
    ours = [each for each in found if "dead rows" not in each.cause and "has been open" not in each.cause]
    assert ours == []


def test_clocks__are_reported_if_they_differ() -> None:
    assert [*problems._clock_problems(4.9), *problems._clock_problems(-4.9)] == []
    (problem,) = problems._clock_problems(-6.0)
    assert problem.cause == "The clocks of this server and of the database differ by 6.0 s."


def test_no_worker__is_reported_also_if_nothing_is_ready(admin_page: Client) -> None:
    assert "No worker is running. What to do Start a worker" in text(admin_page.get(pages.OVERVIEW))
    make_worker("django-worker-1", silent=62, host="web-1")
    shown = text(admin_page.get(pages.OVERVIEW))
    assert "Worker lost: web-1 (no heartbeat for 1 min)." in shown
    assert "No worker is running." in shown


def test_tasks_without_a_worker__are_reported_while_it_is_so(admin_page: Client, worker_schema: str) -> None:
    """The page of events has what happened; the overview says what is so now, and says it once."""
    event = events.NewEvent(kind="tasks_unserved", subject="", severity=events.WARNING, details={"tasks": ["send"]})
    with connection.cursor() as cursor:
        events.add(cursor, event, schema=worker_schema)
    make_worker("django-worker-1", tasks=["other"])
    make_job("send")
    (problem,) = _problems_about_send(admin_page)
    assert problem.cause == "No worker has the tasks of some ready jobs: send."
    make_worker("django-worker-2", tasks=["send"])
    assert _problems_about_send(admin_page) == []
    assert "send" in text(admin_page.get(pages.EVENTS))


def test_dead_rows__are_a_problem_only_if_they_stay(admin_page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of many jobs leaves as many dead rows, until autovacuum has come round."""
    measured = overview.health
    seen: dict[str, Any] = {"estimated_jobs": 0, "oldest_transaction_seconds": None}

    def with_dead_rows(cursor: Any, *, schema: str) -> Any:
        return measured(cursor, schema=schema)._replace(**seen)

    monkeypatch.setattr(overview, "health", with_dead_rows)
    found = []
    for moment, number in ((0, 600_000), (599, 600_000), (601, 600_000), (602, 10), (603, 600_000), (1202, 600_000)):
        seen |= {"now": 1_000.0 + moment, "dead_rows": number}
        causes = [each.cause for each in admin_page.get(pages.OVERVIEW).context["problems"]]
        found.append(any("dead rows" in cause for cause in causes))
    assert found == [False, False, True, False, False, False]


def test_worker_that_has_just_started__is_not_said_to_poll(admin_page: Client) -> None:
    make_worker("django-worker-1", tasks=["send"], is_listening=None)
    assert "Polling instead of listening" not in text(admin_page.get(pages.OVERVIEW))


def test_problems__beyond_three_are_folded_away(admin_page: Client, worker_schema: str) -> None:
    make_job("send")
    for number in range(4):
        make_job("send", locked_by=f"node-worker-{number}", locked_at=minutes_ago(90))
    response = admin_page.get(pages.OVERVIEW)
    shown, more = response.context["problems"], response.context["more_problems"]
    assert (len(shown), len(more)) == (3, 2)
    assert shown[0].cause == "Jobs are ready, but no worker is running.", "errors come first"
    assert "and 2 more" in text(response)


def _problems_about_send(admin_page: Client) -> list[Any]:
    return [each for each in admin_page.get(pages.OVERVIEW).context["problems"] if "send" in each.cause]
