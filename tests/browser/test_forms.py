"""The forms of a job and of a schedule: what scripts do while the user fills them in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import pytest

from django_graphile_worker import registry, task
from django_graphile_worker.models import Schedule
from tests.browser.conftest import DESKTOP, OpenPage

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Report:
    month: int
    format: Literal["pdf", "csv"] = "pdf"
    recipients: list[str] = field(default_factory=list)


@pytest.fixture
def report_task() -> Iterator[None]:
    with registry.tasks.isolated():

        @task("reports:send", schedulable=True)
        def send(payload: Report) -> None:
            """Send the report of a month."""

        yield


def test_form_of_a_schedule__checks_while_the_user_types_and_saves(report_task: None, open_page: OpenPage) -> None:
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
    # A correction removes it, and shows the next times.
    page.fill("[name=payload-recipients]", '["ada@example.org"]')
    page.fill("#id_starts_at", "2030-03-09T00:00:00")
    page.fill("#id_time_zone", "America/New_York")
    page.fill("#id_cron", "30 2 * * *")
    page.wait_for_selector(".gw-clock-change")
    page.wait_for_selector(".errorlist", state="detached")
    assert "Every day at 02:30 (America/New_York)" in page.inner_text("#gw-preview")
    assert page.get_attribute("#id_cron", "aria-invalid") is None
    page.fill("[name=payload-month]", "5")
    # The first button of the form is that which shows fields; Enter saves.
    page.fill("#id_name", "Monthly report")
    page.press("#id_name", "Enter")
    page.wait_for_url("**/schedule/")
    schedule = Schedule.objects.get(name="Monthly report")
    assert (schedule.cron, schedule.changed_by) == ("30 2 * * *", "demo")
    assert schedule.payload == {"month": 5, "recipients": ["ada@example.org"]}


def test_form_of_a_job__describes_the_chosen_task_and_keeps_the_rest(open_page: OpenPage) -> None:
    page = open_page("job/add/", viewport=DESKTOP, locale="de")
    assert not page.is_visible("[data-describe-task]")
    page.fill("#id_payload", "{")
    page.fill("#id_task", "move_stock")
    page.press("#id_task", "Tab")
    page.wait_for_selector("#gw-task-facts :text('In a named queue')")
    assert "Warteschlange\nwarehouse" in page.inner_text("#gw-task-facts dl")
    assert page.input_value("#id_payload") == "{"
    page.fill("#id_task", "")
    page.press("#id_task", "Tab")
    page.wait_for_selector("#gw-task-facts", state="hidden")
    # An error is right above its field.
    page.click(".gw-page form button.gw-primary")
    page.wait_for_selector(".field-payload .errorlist")
    error, box = (page.locator(selector).bounding_box() for selector in (".field-payload .errorlist", "#id_payload"))
    assert error["x"] == pytest.approx(box["x"], abs=2)
    assert 0 <= box["y"] - error["y"] - error["height"] < 12
