"""The form of a schedule: its check while typing, its fields for payloads, and the form without scripts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from django_graphile_worker import task
from django_graphile_worker.models import Schedule, changed_by
from tests.browser import looks
from tests.browser.test_accessibility import DESKTOP, PHONE, RUN, TAGS, axe_script
from tests.browser.test_admin import SCREENSHOTS

__all__ = ["axe_script"]

pytestmark = pytest.mark.django_db(transaction=True)

OpenPage = Callable[..., Any]


@dataclass
class Report:
    month: int
    format: Literal["pdf", "csv"] = "pdf"
    recipients: list[str] = field(default_factory=list)


@pytest.fixture(autouse=True)
def tasks(showcase_data: None) -> None:
    @task("reports:send", schedulable=True)
    def send(payload: Report) -> None:
        """Send the report of a month."""

    @task("reports:plain", schedulable=True)
    def plain(payload: Any) -> None: ...


def wrong_with(page: Any, axe: str) -> dict[str, list[str]]:
    """Return what axe-core and the checks of contrast find on the page, light on a desktop and dark on a phone."""
    found = {}
    page.evaluate(axe)
    for scheme, viewport in (("dark", PHONE), ("light", DESKTOP)):
        page.set_viewport_size(viewport)
        page.evaluate("scheme => { document.documentElement.dataset.theme = scheme; }", scheme)
        problems = looks.problems(page) + (page.evaluate(RUN, TAGS) if viewport is DESKTOP else [])
        if problems:
            found[f"{page.url} {scheme}"] = problems
    return found


def test_form__checks_while_the_user_types_and_saves(open_page: OpenPage, axe_script: str) -> None:
    page = open_page("schedule/add/", viewport=DESKTOP)
    assert not page.is_visible("[name=describe]")
    assert not page.is_visible("#id_interval")
    # The fields of the payload follow the task.
    page.select_option("#id_task", "reports:send")
    page.wait_for_selector("[name=payload-month]")
    # An error appears at the field that is typed in, and at no other.
    page.fill("#id_cron", "0 25 * * 1-5")
    page.wait_for_selector(".field-cron .errorlist")
    assert "expected an hour from 0 to 23, got '25'." in page.inner_text(".field-cron .errorlist")
    assert page.get_attribute("#id_cron", "aria-invalid") == "true"
    assert page.get_attribute("#id_cron", "aria-describedby") == "id_cron_error id_cron_helptext"
    assert page.locator(".errorlist").count() == 1
    page.fill("[name=payload-recipients]", "nobody")
    page.wait_for_selector(".field-recipients .errorlist")
    assert wrong_with(page, axe_script) == {}
    # A correction removes it, and shows the next times.
    page.fill("[name=payload-recipients]", '["ada@example.org"]')
    page.fill("#id_starts_at", "2030-03-09T00:00:00")
    page.fill("#id_time_zone", "America/New_York")
    page.fill("#id_cron", "30 2 * * *")
    page.wait_for_selector(".gw-clock-change")
    page.wait_for_selector(".errorlist", state="detached")
    assert "Every day at 02:30 (America/New_York)" in page.inner_text("#gw-preview")
    assert page.get_attribute("#id_cron", "aria-invalid") is None
    if SCREENSHOTS:
        page.locator(".gw-schedule-when").screenshot(path=Path(SCREENSHOTS) / "admin-schedule.png")
    page.fill("[name=payload-month]", "5")
    # The first button of the form is that which shows fields; Enter saves.
    page.fill("#id_name", "Monthly report")
    page.press("#id_name", "Enter")
    page.wait_for_url("**/schedule/")
    schedule = Schedule.objects.get(name="Monthly report")
    assert (schedule.cron, schedule.changed_by) == ("30 2 * * *", "demo")
    assert schedule.payload == {"month": 5, "recipients": ["ada@example.org"]}


def test_conflict__is_shown_with_what_was_changed(open_page: OpenPage, axe_script: str) -> None:
    schedule = Schedule.objects.create(name="Report", task="reports:send", payload={"month": 5}, cron="@daily")
    page = open_page(f"schedule/{schedule.pk}/change/", viewport=DESKTOP)
    with changed_by("maria"):
        Schedule.objects.filter(pk=schedule.pk).update(cron="0 9 * * 1-5", payload={"month": 6, "other": True})
    page.fill("#id_description", "Mine")
    page.click(".gw-left .gw-primary")
    page.wait_for_selector(".gw-notice-error")
    assert "maria has changed this schedule in between" in page.inner_text(".gw-notice-error")
    assert wrong_with(page, axe_script) == {}
    # What nobody can change is shown.
    Schedule.objects.filter(pk=schedule.pk).update(task="gone")
    page.goto(f"schedule/{schedule.pk}/change/")
    assert looks.problems(page) == []


def test_form__works_without_scripts(open_page: OpenPage) -> None:
    page = open_page("schedule/add/", viewport=PHONE, java_script_enabled=False)
    page.select_option("#id_task", "reports:send")
    page.fill("#id_name", "Ten seconds")
    page.click("[name=describe]")
    # The style sheet alone shows the field of the chosen kind.
    page.check("input[value=interval]")
    assert not page.is_visible("#id_cron")
    page.fill("#id_interval", "every 10 s")
    page.fill("[name=payload-month]", "7")
    page.click("[name=preview]")
    assert "Every 10 seconds" in page.inner_text("#gw-preview")
    page.click("[name=switch]")
    assert page.input_value("[name=payload-json]") == '{\n  "month": 7\n}'
    page.click(".gw-left .gw-primary")
    page.wait_for_url("**/schedule/")
    assert Schedule.objects.get(name="Ten seconds").payload == {"month": 7}
