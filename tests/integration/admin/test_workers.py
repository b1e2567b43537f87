"""The workers page."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tests.integration.admin.conftest import MakeClient
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, make_worker, text
from tests.support.factories import make_job, minutes_ago
from tests.support.operating import execute


def test_shows_the_metadata_of_each_worker(admin_page: Client) -> None:
    make_worker(
        "django-worker-1",
        host="box",
        pid=7,
        version="1.2",
        concurrency=4,
        tasks=["send"],
    )
    shown = text(admin_page.get(pages.WORKERS))
    for expected in ("alive", "django-worker-1", "box 7", "1.2", "0 / 4", "1 task"):
        assert expected in shown


def test_slots_in_use__are_added_up_over_the_live_workers(admin_page: Client) -> None:
    make_worker("django-worker-1", concurrency=4)
    for _ in range(6):
        make_job("send", locked_by="django-worker-1/1")
    assert "workers are alive" not in text(admin_page.get(pages.WORKERS))
    make_worker("django-worker-2", concurrency=3)
    make_worker("django-worker-3", concurrency=50, silent=900)
    make_worker("django-worker-4", concurrency=50, is_stopping=True)
    # Two of the six jobs wait inside the worker.
    assert "3 workers are alive. Slots in use: 4 / 7" in text(admin_page.get(pages.WORKERS))
    tiles = {tile.label: tile.value for tile in admin_page.get(pages.OVERVIEW).context["tiles"]}
    assert (tiles["Workers alive"], tiles["Slots in use"]) == ("3", "4 / 7")


def test_versions__are_told_apart_during_a_deploy(admin_page: Client) -> None:
    make_worker("django-worker-1", version="1.9.3")
    make_worker("django-worker-2", version="1.9.3", silent=900)
    assert "versions" not in text(admin_page.get(pages.WORKERS))
    assert "Worker alive" in {tile.label for tile in admin_page.get(pages.OVERVIEW).context["tiles"]}
    for number in range(3, 6):
        make_worker(f"django-worker-{number}", version="1.10.0")
    told = "2 versions: 1.9.3 (1 worker), 1.10.0 (3 workers)"
    assert told in text(admin_page.get(pages.WORKERS))
    overview = admin_page.get(pages.OVERVIEW).context
    tiles = {tile.label: (tile.value, tile.note) for tile in overview["tiles"]}
    assert tiles["Workers alive, of 2 versions"] == ("4", told)
    assert not any("versions" in problem.cause for problem in overview["problems"])


def test_versions_that_differ_for_hours__are_a_problem(admin_page: Client) -> None:
    for number, version in enumerate(["1.9.3", "1.10.0", "1.10.0"]):
        make_worker(f"django-worker-{number}", version=version)
    # A deploy of seven hours ago missed one; a worker that was started again since changes nothing.
    execute("update {schema}._private_workers set started_at = now() - interval '7 h' where id = 'django-worker-1'")
    shown = text(admin_page.get(pages.OVERVIEW))
    assert "have run side by side for 7 h. 2 versions: 1.9.3 (1 worker), 1.10.0 (2 workers). What to do" in shown


def test_running_jobs_are_those_that_the_worker_holds_now(admin_page: Client) -> None:
    """The jobs that it reported with its last heartbeat may have ended."""
    make_worker("django-worker-1", concurrency=4, running=[{"job_id": 5, "task": "gone", "started_at": 1.7e9}])
    make_worker("django-worker-10", concurrency=4)
    job_id = make_job("send", locked_by="django-worker-1/7", locked_at=minutes_ago(65 / 60), attempts=1)
    execute(
        "insert into {schema}._private_progress values (%s, 1, 300, 1200, 'page', now() - interval '10 seconds')",
        [job_id],
    )
    other = make_job("charge", locked_by="django-worker-10/1", locked_at=minutes_ago(1))
    response = admin_page.get(pages.WORKERS)
    shown = text(response)
    assert "gone" not in shown
    assert f'<a href="{pages.job_url(job_id)}"><bdi>send</bdi> #{job_id}</a>' in body(response)
    assert "25 % 300 of 1,200 about 2 min left page" in shown
    assert "Slots in use 1 / 4 Holds 1 job (1 min" in shown
    card_of_other = shown[shown.index("django-worker-10") :]
    assert f"charge #{other}" in card_of_other.split("django-worker-1 ")[0]


def test_worker_that_holds_many_jobs_links_to_them(admin_page: Client) -> None:
    make_worker("django-worker-1", concurrency=4)
    for _ in range(23):
        make_job("send", locked_by="django-worker-1/1")
    response = admin_page.get(pages.WORKERS)
    assert "Slots in use 4 / 4 Holds 23 jobs" in text(response)
    assert "3 more jobs" in text(response)
    assert 'href="/admin/graphile_worker/job/?state=running&amp;q=worker%3Adjango-worker-1"' in body(response)


def test_links_to_jobs_are_for_users_who_may_see_them(
    client_with: MakeClient, settings: Any, admin_page: Client
) -> None:
    make_worker("django-worker-1")
    theirs, mine = (make_job(task, locked_by="django-worker-1/1") for task in ("send", "mine%send"))
    shown = body(client_with(views=("view_worker",)).get(pages.WORKERS))
    assert f"#{theirs}" in shown
    assert pages.job_url(theirs) not in shown
    settings.ROOT_URLCONF = "tests.integration.admin.restricted_site"
    restricted = text(admin_page.get("/restricted/graphile_worker/worker/"))
    assert f"#{mine}" in restricted
    assert f"#{theirs}" not in restricted


@pytest.mark.parametrize(
    "metadata",
    [
        "[]",
        "null",
        '"x"',
        '{"running": 5, "tasks": {"a": 1}, "concurrency": "ten", "host": {"a": []}, "pid": null}',
        '{"running": [1, null, {"job_id": "7", "started_at": "soon"}, {"started_at": 1e300}], "concurrency": 0}',
    ],
)
def test_invalid_metadata_breaks_no_page(admin_page: Client, metadata: str) -> None:
    execute("insert into {schema}._private_workers (id, metadata) values ('w', %s)", [metadata])
    for url in (pages.WORKERS, pages.OVERVIEW, pages.ADD):
        assert admin_page.get(url).status_code == 200


def test_unregistered_workers_are_shown_separately(admin_page: Client) -> None:
    make_job("send", locked_by="node-1", locked_at=minutes_ago(3))
    assert "Not registered, but holding" in text(admin_page.get(pages.WORKERS))
