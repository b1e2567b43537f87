"""The bar of ``{% job_progress %}`` in Chromium, under a strict content security policy."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from tests.browser.conftest import OpenPage
from tests.support.factories import make_job
from tests.support.operating import execute
from tests.support.results import store_result

pytestmark = pytest.mark.django_db(transaction=True)


def report(job_id: int, done: int, message: str) -> None:
    execute(
        "insert into {schema}._private_progress values (%s, 1, %s, 7, %s, now())"
        " on conflict (job_id) do update set done = excluded.done, message = excluded.message",
        [job_id, done, message],
    )


@pytest.fixture
def running(site: Any, settings: Any) -> int:
    settings.ROOT_URLCONF = "tests.browser.progress_site"
    job_id = make_job("export", locked_by="django-worker-1/1", attempts=1)
    report(job_id, 2, "page 2 of 7")
    return job_id


def test_bar__moves_by_itself_and_loads_the_page_again_at_the_end(
    running: int, open_page: OpenPage, worker_schema: str
) -> None:
    page = open_page(f"/export/{running}/")
    assert page.inner_text(".gw-progress-message") == "page 2 of 7"
    assert page.get_attribute(".gw-progress-bar", "value") == "28"
    report(running, 5, "page 5 of 7")
    page.wait_for_selector("text=page 5 of 7")
    page.wait_for_function("document.querySelector('.gw-progress-bar').value === 71")
    with connection.cursor() as cursor:
        store_result(cursor, running, worker_schema, task="export", value={"pages": 7})
    execute("delete from {schema}._private_jobs where id = %s", [running])
    page.wait_for_selector("#done")
    assert page.inner_text("#done") == "7 pages"
    assert page.inner_text(".gw-progress-status") == "Finished"
    assert page.query_selector("[data-gw-progress]") is None, "the page does not load itself again"


def test_bar__moves_without_any_script(running: int, open_page: OpenPage) -> None:
    page = open_page(f"/export/{running}/", java_script_enabled=False)
    frame = page.frame_locator("iframe")
    assert frame.locator(".gw-progress-message").inner_text() == "page 2 of 7"
    report(running, 6, "page 6 of 7")
    frame.locator("text=page 6 of 7").wait_for()
