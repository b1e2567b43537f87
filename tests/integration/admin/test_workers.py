"""The workers page."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.support import admin_pages as pages
from tests.support.admin_pages import make_worker, text
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
        running=[{"job_id": 5, "task": "send", "started_at": 1.7e9}],
    )
    shown = text(admin_page.get(pages.WORKERS))
    for expected in ("alive", "django-worker-1", "box 7", "1.2", "1 / 4", "send #5", "1 task"):
        assert expected in shown


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
