"""An action on many jobs, which continues by itself, in Chromium."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest
from playwright.sync_api import expect

from django_graphile_worker.admin.jobs import bulk_action
from django_graphile_worker.models import Job
from django_graphile_worker.sql.job_actions import bulk_steps
from tests.browser.conftest import DESKTOP, OpenPage
from tests.support.factories import make_job
from tests.support.operating import execute

pytestmark = pytest.mark.django_db(transaction=True)


def test_stop__during_a_step_says_what_the_step_has_changed_too(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch, wait_until: Any
) -> None:
    monkeypatch.setattr(bulk_steps, "STEP", 4)
    for _ in range(20):
        make_job("fresh")
    page = open_page("job/?state=ready&q=task:fresh", viewport=DESKTOP)
    page.check("[data-select-all-matches]")
    page.select_option("#gw-action", "reschedule")
    page.click("button:has-text('Go')")
    assert page.inner_text(".gw-heading h1") == "Reschedule 20 jobs?"
    page.fill("#id_priority", "7")
    monkeypatch.setattr(bulk_action, "MAX_REQUEST_TIME", 0.0)
    is_changed, may_commit = Event(), Event()
    run_step = bulk_steps.run_step

    def held_step(*arguments: Any, **options: Any) -> Any:
        result = run_step(*arguments, **options)
        if Job.objects.filter(priority=7).count() > 4:
            # The request that the page sends by itself: its step is not committed yet.
            is_changed.set()
            assert may_commit.wait(60)
        return result

    monkeypatch.setattr(bulk_steps, "run_step", held_step)
    page.click("button:has-text('Reschedule')")
    expect(page.locator("#gw-work-text")).to_have_text("4 of 20 jobs")
    button = page.locator("button[name=stop]").bounding_box()
    assert is_changed.wait(60)
    # The page is still shown while the browser waits for the answer. Other clicks of Playwright would wait for it, too.
    page.mouse.click(button["x"] + button["width"] / 2, button["y"] + button["height"] / 2)
    wait_until(lambda: execute("select 1 from {schema}._private_actions where stopped_at is not null"))
    may_commit.set()
    expect(page.locator(".messagelist")).to_contain_text("Stopped after 8 of 20 jobs.")
    assert "8 jobs were rescheduled." in page.inner_text(".messagelist")
    assert Job.objects.filter(priority=7).count() == 8
