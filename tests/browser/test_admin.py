"""The admin in Chromium, under a content security policy that forbids everything inline."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from playwright.sync_api import expect

from django_graphile_worker.admin.jobs import action_texts, bulk_action
from django_graphile_worker.models import Job
from django_graphile_worker.sql.job_actions import bulk_steps
from tests.support.factories import make_failed_job, make_job, minutes_ago

pytestmark = pytest.mark.django_db(transaction=True)

OpenPage = Callable[..., Any]
# SCREENSHOTS=docs/_static stores the screenshots for the documentation.
SCREENSHOTS = os.environ.get("SCREENSHOTS")
DESKTOP = {"width": 1360, "height": 880}


ERROR = """ValueError: no such order

Traceback (most recent call last):
  File "/srv/shop/tasks.py", line 9, in send
    raise ValueError
ValueError: no such order"""


def refresh_often(page: Any) -> None:
    """Refresh five times a second, an interval that the page does not offer."""
    page.evaluate("document.querySelector('#gw-interval').add(new Option('often', '0.2'))")
    page.select_option("#gw-interval", "0.2")


def take_screenshot(page: Any, name: str, *, full: bool = False) -> None:
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"admin-{name}.png", full_page=full)


def test_failed_job__can_be_found_and_run_again(open_page: OpenPage) -> None:
    """Log in, find the failed job, read its error, run it again, and watch it succeed."""
    job_id = make_failed_job(
        "send_receipt",
        payload={"order": 7},
        error=ERROR,
        created_at=minutes_ago(5),
        updated_at=minutes_ago(5),
        run_at=minutes_ago(1),
    )
    page = open_page("overview/", logs_in=True)
    page.click(".gw-tile-failed a")
    page.fill("#gw-q", "error:'no such order'".replace("'", '"'))
    page.press("#gw-q", "Enter")
    page.wait_for_selector(".gw-term")
    page.click(f"text=#{job_id}")
    assert page.inner_text(".gw-error-summary") == "ValueError: no such order"
    assert "/srv/shop/tasks.py" in page.inner_text(".gw-frames")

    page.click("text=Reschedule…")
    page.fill("#id_run_at", "2020-01-01T00:00:00")
    page.click("button:has-text('Reschedule')")
    assert "1 job was rescheduled." in page.inner_text(".messagelist")
    assert page.inner_text(".gw-status .gw-badge") == "Ready"
    assert "demo" in page.inner_text(".gw-timeline"), "the timeline names the user"

    refresh_often(page)
    call_command("runworker", once=True)
    page.wait_for_selector("text=It ended or was deleted")
    assert "Jobs that succeed are deleted" in page.inner_text(".gw-page")


def test_add_form__refuses_invalid_json_and_accepts_valid_json(open_page: OpenPage) -> None:
    page = open_page("job/add/")
    page.fill("#id_task", "send_receipt")
    page.fill("#id_payload", '{"order": 7,}')
    page.click("button:has-text('Add job')")
    assert "line 1, column 13" in page.inner_text(".field-payload .errorlist")
    assert page.get_attribute("#id_payload", "aria-invalid") == "true"
    assert page.input_value("#id_task") == "send_receipt"
    page.fill("#id_payload", '{"order": 9007199254740993}')
    page.click("button:has-text('Add job')")
    assert "Added send_receipt #" in page.inner_text(".messagelist")
    assert "9007199254740993" in page.inner_text(".gw-payload")


def test_actions__change_selected_jobs_or_all_that_match(open_page: OpenPage) -> None:
    page = open_page("job/?state=ready&q=task:send_receipt", viewport=DESKTOP)
    before = Job.objects.filter(task__identifier="send_receipt").count()
    boxes = page.locator("td.gw-check input")
    boxes.nth(0).check()
    boxes.nth(1).check()
    page.select_option("#gw-action", "delete")
    page.click("button:has-text('Go')")
    assert page.inner_text(".gw-heading h1") == "Delete 2 jobs?"
    page.click("button:has-text('Delete')")
    assert "2 jobs were deleted." in page.inner_text(".messagelist")

    page.check("[data-select-all-matches]")
    expect(boxes.nth(0)).to_be_disabled()
    page.select_option("#gw-action", "fail")
    page.click("button:has-text('Go')")
    assert page.inner_text(".gw-heading h1") == f"Fail {before - 2} jobs?"
    assert "Ready task:send_receipt" in page.inner_text(".gw-notice")
    page.fill("#id_reason", "The shop is closed.")
    page.click("button:has-text('Fail')")
    assert f"{before - 2} jobs were failed." in page.inner_text(".messagelist")
    assert "No jobs match. Show all states" in page.inner_text("#gw-jobs")
    assert Job.objects.filter(last_error__startswith="The shop is closed.").count() == before - 2


def labels(page: Any) -> list[str]:
    return [each.strip() for each in page.locator(".gw-heading .gw-buttons .gw-button").all_inner_texts()]


def test_job__offers_the_actions_of_its_state_and_does_them(open_page: OpenPage) -> None:
    """Edit and retry a failed job, run it next, schedule it, run it now, and delete it."""
    job_id = make_failed_job("send_email", payload={"order": 7}, error=ERROR, run_at=minutes_ago(-300))
    page = open_page(f"job/{job_id}/change/", viewport=DESKTOP)
    state = page.locator(".gw-status .gw-badge")
    assert labels(page)[:4] == ["Retry", "Edit and retry…", "Reschedule…", "Delete…"]
    page.click("text=Edit and retry…")
    assert page.inner_text(".gw-heading h1") == f"Edit and retry send_email #{job_id}"
    page.fill("#id_payload", '{"order": 8}')
    page.click("button:has-text('Save and retry')")
    assert "will be retried now" in page.inner_text(".messagelist")
    assert (state.inner_text(), "8" in page.inner_text(".gw-payload")) == ("Ready", True)
    assert page.inner_text(".gw-error-summary") == "ValueError: no such order", "it keeps its error"

    assert labels(page)[:4] == ["Run next", "Reschedule…", "Fail…", "Delete…"]
    page.click("button:has-text('Run next')")
    assert "1 job will run next." in page.inner_text(".messagelist")
    assert Job.objects.get(pk=job_id).priority == -1
    page.click("text=Reschedule…")
    assert page.inner_text(".gw-heading h1") == f"Reschedule send_email #{job_id}?"
    page.fill("#id_run_at", "2090-01-02T09:00:00")
    page.click("button:has-text('Reschedule')")
    assert state.inner_text() == "Scheduled"
    assert labels(page)[0] == "Run now"
    page.click("button:has-text('Run now')")
    assert "1 job will run now." in page.inner_text(".messagelist")
    assert state.inner_text() == "Ready"
    page.click("text=Delete…")
    assert page.inner_text(".gw-heading h1") == f"Delete send_email #{job_id}?"
    page.reload()
    assert page.inner_text(".gw-heading h1") == f"Delete send_email #{job_id}?"
    page.click("button:has-text('Delete')")
    assert "1 job was deleted." in page.inner_text(".messagelist")
    running = Job.objects.filter(task__identifier="resize_photo", locked_at__isnull=False).earliest("pk").pk
    page.goto(f"job/{running}/change/")
    assert labels(page)[0] == "Cancel…"


def test_many_jobs__are_deleted_after_their_number_was_typed(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(action_texts, "MAX_UNTYPED", 10)
    page = open_page("job/?q=task:send_receipt", viewport=DESKTOP, java_script_enabled=False)
    page.check("[data-select-all-matches]")
    page.select_option("#gw-action", "delete")
    page.click("button:has-text('Go')")
    assert page.inner_text(".gw-heading h1") == "Delete 37 jobs?"
    assert "Type 37 to confirm" in page.inner_text(".gw-typed")
    page.fill("#gw-typed", "36")
    page.click("button:has-text('Delete')")
    assert "Nothing was changed. The number is 37." in page.inner_text(".errornote")
    take_screenshot(page, "confirm")
    page.fill("#gw-typed", "37")
    page.click("button:has-text('Delete')")
    assert "37 jobs were deleted." in page.inner_text(".messagelist")


def test_mistyped_search__offers_no_action_on_all(open_page: OpenPage) -> None:
    page = open_page("job/?state=failed", viewport=DESKTOP)
    page.fill("#gw-q", "taks:print_invoice")
    page.keyboard.press("Enter")
    page.wait_for_selector(".gw-notice")
    assert page.input_value("#gw-q") == "taks:print_invoice"
    assert page.locator("[data-select-all-matches]").count() == 0
    page.click("text=Retrying")
    page.wait_for_selector("[aria-current=page]:has-text('Retrying')")
    assert page.input_value("#gw-q") == "taks:print_invoice", "a mistake stays in the search box"
    page.fill("#gw-q", "task:charge_card")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-select-all-matches]")


def test_action_on_many_jobs__continues_by_itself(open_page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_steps, "STEP", 4)
    clock = iter(range(10**6))
    monkeypatch.setattr(bulk_action, "MAX_REQUEST_TIME", 1.5)
    monkeypatch.setattr(bulk_action, "monotonic", lambda: next(clock))
    for _ in range(10):
        make_failed_job("many", error="KeyError: 'x'")
    page = open_page("job/?state=failed&q=task:many", viewport=DESKTOP)
    page.check("[data-select-all-matches]")
    page.select_option("#gw-action", "retry")
    page.click("button:has-text('Go')")
    page.click("button:has-text('Retry')")
    page.wait_for_selector("text=The changes so far stay")
    page.set_viewport_size({"width": 1360, "height": 340})
    take_screenshot(page, "progress")
    page.wait_for_selector(".messagelist")
    assert "10 jobs will be retried now." in page.inner_text(".messagelist")


def test_page__refreshes_itself_also_while_it_is_used(open_page: OpenPage) -> None:
    page = open_page("job/?q=task:fresh")
    page.evaluate("window.keptAlive = true")
    refresh_often(page)
    first = make_job("fresh")
    page.wait_for_selector(f"text=#{first}")
    assert page.evaluate("window.keptAlive"), "the page itself was not loaded again"
    page.check("td.gw-check input")
    second = make_job("fresh")
    page.wait_for_selector(f"text=#{second}")
    assert page.is_checked(f"td.gw-check input[value='{first}']")

    page.select_option("#gw-interval", "2")
    page.reload()
    assert page.input_value("#gw-interval") == "2", "the interval is stored"


def test_pages__work_without_javascript(open_page: OpenPage) -> None:
    page = open_page("job/?state=failed&q=task:print_invoice", java_script_enabled=False)
    assert not page.is_visible("#gw-interval")
    page.check("[data-select-all-matches]")
    page.select_option("#gw-action", "retry")
    page.click("button:has-text('Go')")
    page.click("button:has-text('Retry')")
    assert "4 jobs will be retried now." in page.inner_text(".messagelist")


def test_pages__can_be_used_with_the_keyboard_only(open_page: OpenPage) -> None:
    page = open_page("job/")
    page.keyboard.press("Tab")
    page.focus("#gw-q")
    page.keyboard.type("task:print_invoice")
    page.keyboard.press("Enter")
    page.wait_for_selector(".gw-term")
    page.focus(".field-number a")
    page.keyboard.press("Enter")
    page.wait_for_selector(".gw-error-summary")
    names = page.eval_on_selector_all(
        ".gw-page :is(button, select, input:not([type=hidden]), a)",
        "all => all.filter(node => !(node.textContent.trim() || node.labels?.length || node.ariaLabel)).length",
    )
    assert names == 0, "every control has a name"


PHONE = {"width": 390, "height": 800}


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_long_names__leave_room_for_other_columns(open_page: OpenPage, viewport: Any) -> None:
    name = "x" * 128
    job_id = make_failed_job(name, error=f"{'Y' * 118}: {'z' * 400}", queue_name=name, key="k" * 300)
    make_job(name, queue_name=name, run_at=minutes_ago(1))
    page = open_page("overview/", viewport=viewport)
    for path in ("overview/", "job/", "jobqueue/", "errorgroup/", f"job/{job_id}/change/"):
        page.goto(path)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= viewport["width"], path
        hidden = page.eval_on_selector_all(
            ".gw-scroll", "all => all.filter(node => node.scrollWidth > node.clientWidth + 1).length"
        )
        assert hidden == 0, path
        narrow = page.eval_on_selector_all(
            ".gw-name",
            "all => all.filter(node => node.checkVisibility() && node.getBoundingClientRect().width < 90).length",
        )
        assert narrow == 0, path
    page.goto("errorgroup/")
    tall = page.eval_on_selector_all(".gw-error-name", "all => all.filter(node => node.offsetHeight > 100).length")
    assert tall == 0, "a name is no column of single letters"


def test_text_from_right_to_left__does_not_move_the_text_beside_it(open_page: OpenPage) -> None:
    """Beside an Arabic name, a number or a value of the payload must not change sides."""
    job_id = make_failed_job("إرسال", payload={"اسم": "محمد"}, error="ValueError: لا")
    page = open_page(f"job/{job_id}/change/", viewport=DESKTOP)
    key, value = (page.locator(selector).bounding_box() for selector in (".gw-json-key", ".gw-json-string"))
    assert key["x"] + key["width"] <= value["x"] + 1
    number = page.evaluate(
        """() => {
            const title = document.querySelector('.gw-heading h1'), range = document.createRange();
            range.selectNode(title.lastChild);
            return [title.querySelector('bdi').getBoundingClientRect().right, range.getBoundingClientRect().left];
        }"""
    )
    assert number[0] <= number[1] + 1


def test_form_error__is_shown_right_above_its_field(open_page: OpenPage) -> None:
    page = open_page("job/add/", viewport=DESKTOP)
    page.fill("#id_payload", "{")
    page.click("button:has-text('Add job')")
    error, field = (page.locator(selector).bounding_box() for selector in (".field-payload .errorlist", "#id_payload"))
    assert error["x"] == pytest.approx(field["x"], abs=2)
    assert 0 <= field["y"] - error["y"] - error["height"] < 12


# The pictures of the documentation: the address of each page, and the height of its picture.
PICTURES = {
    "overview": ("overview/", 1240),
    "task": ("overview/?task=charge_card", 1180),
    "jobs": ("job/?state=retrying", 760),
    "errors": ("errorgroup/", 550),
    "schedules": ("schedule/", 900),
    "workers": ("worker/", 580),
    "queues": ("jobqueue/", 420),
    "limits": ("limitkey/", 730),
}
CLOSED_SIDEBAR = "localStorage.setItem('django.admin.navSidebarIsOpen', 'false')"


@pytest.mark.skipif(not SCREENSHOTS, reason="set SCREENSHOTS=docs/_static to take the documentation's pictures anew")
def test_screenshots__are_taken_for_the_documentation(open_page: OpenPage) -> None:
    page = open_page("overview/", viewport=DESKTOP)
    page.evaluate(CLOSED_SIDEBAR)
    failed = Job.objects.get(task__identifier="charge_card", attempts=25).pk
    for name, (path, height) in (PICTURES | {"job": (f"job/{failed}/change/", 820)}).items():
        page.set_viewport_size({"width": 1360, "height": height})
        page.goto(path)
        take_screenshot(page, name)
    page.goto("overview/")
    page.click(".gw-more-charts > summary")
    page.hover("#gw-plot-throughput")
    page.wait_for_selector(".gw-crosshair", state="visible")
    page.locator("#gw-charts").screenshot(path=Path(str(SCREENSHOTS)) / "admin-charts.png")
    page.set_viewport_size({"width": 1360, "height": 640})
    dark = open_page("overview/", viewport={"width": 1360, "height": 1240}, color_scheme="dark")
    dark.evaluate(CLOSED_SIDEBAR)
    dark.reload()
    take_screenshot(dark, "overview-dark")
    take_screenshot(open_page("job/?state=failed", viewport=PHONE), "jobs-narrow")


def test_numbers_of_a_limit__are_changed_and_reset(open_page: OpenPage) -> None:
    page = open_page("limitkey/", viewport=DESKTOP)
    assert "account:4711" in page.inner_text("#gw-keys")
    page.click("#gw-limits tr:has-text('account:{account}') a:has-text('Change…')")
    assert page.input_value("#id_rate") == "100/m"
    page.fill("#id_concurrency", "5")
    page.fill("#id_rate", "often")
    page.click("button:has-text('Save')")
    assert "expected a rate like" in page.inner_text(".field-rate .errorlist")
    page.fill("#id_rate", "")
    page.fill("#id_burst", "")
    page.click("button:has-text('Save')")
    assert "5" in page.inner_text("#gw-limits tr:has-text('account:{account}')")
    assert "demo" in page.inner_text("#gw-limits tr:has-text('account:{account}')")
    page.click("#gw-limits tr:has-text('account:{account}') a:has-text('Change…')")
    page.click("button:has-text('Use the numbers of the code')")
    assert "code and settings" in page.inner_text("#gw-limits tr:has-text('account:{account}')")
