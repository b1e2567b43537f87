"""The list of schedules in a browser: actions with and without scripts, the keyboard, live regions, hostile names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_graphile_worker.models import Job, Schedule
from tests.browser import looks
from tests.browser.test_accessibility import RUN, TAGS, axe_script
from tests.support.operating import execute
from tests.support.schedule_rows import make_schedule

__all__ = ["axe_script"]

pytestmark = pytest.mark.django_db(transaction=True)

OpenPage = Callable[..., Any]
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
OPEN_ALL = "() => document.querySelectorAll('#gw-schedules details').forEach(each => { each.open = true; })"


def test_schedules__are_paused_and_run_without_scripts(open_page: OpenPage) -> None:
    page = open_page("schedule/", viewport=PHONE, java_script_enabled=False)
    row = "tr:has-text('Exchange rates')"
    page.click(f"{row} .gw-menu-button")
    page.click(f"{row} button:has-text('Pause…')")
    page.select_option("#id_length", "week")
    page.click("button.gw-primary:has-text('Pause')")
    page.wait_for_selector(f"{row}:has-text('paused ends in')")
    assert Schedule.objects.get(name="Exchange rates").changed_by == "demo"
    page.click(f"{row} button:has-text('Resume')")
    page.wait_for_selector(f"{row}:has-text('paused')", state="detached")
    before = Job.objects.count()
    page.click(f"{row} button:has-text('Run now')")
    assert Job.objects.count() == before + 1
    page.click(f"{row} .gw-menu-button")
    page.click(f"{row} button:has-text('Delete')")
    page.click("button.gw-danger-solid")
    assert not Schedule.objects.filter(name="Exchange rates").exists()
    page.check("tr:has-text('Winter sale') input[name=_selected_action]")
    page.check("tr:has-text('Ask for reviews') input[name=_selected_action]")
    page.select_option("#gw-action", "disable")
    page.click("button:has-text('Go')")
    page.click("button.gw-primary:has-text('Disable')")
    page.wait_for_selector("text=Disabled 2 schedules.")


def test_list__is_usable_by_keyboard_refreshes_and_passes_axe(open_page: OpenPage, axe_script: str) -> None:
    make_schedule(
        "<b>\u202eevil\u202c</b> " + "w" * 180, "refresh_search_index", description="\u05e9\u05dc\u05d5\u05dd " * 40
    )
    page = open_page("schedule/", viewport=DESKTOP)
    page.focus("tr:has-text('Ask for reviews') input[name=_selected_action]")
    page.keyboard.press("Space")
    assert page.inner_text("[data-selected]") == "1 selected"
    summary = page.locator(".gw-runs summary").first
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator(".gw-runs[open]").count() == 1
    execute("update {schema}._private_schedules set is_enabled = false where name = 'Winter sale'")
    page.wait_for_selector("tr:has-text('Winter sale') .gw-badge:has-text('disabled')")
    # What the user has opened and selected stays.
    assert page.locator(".gw-runs[open]").count() == 1
    assert page.inner_text("[data-selected]") == "1 selected"
    # With all details open, on a desktop and on a phone.
    page.goto("schedule/")
    page.evaluate(axe_script)
    page.evaluate(OPEN_ALL)
    assert page.evaluate(RUN, TAGS) == []
    page.set_viewport_size(PHONE)
    assert looks.problems(page) == []


@pytest.mark.parametrize("width", [1024, 1280, 1600])
def test_buttons_of_rows__are_in_sight_beside_the_navigation(open_page: OpenPage, width: int) -> None:
    page = open_page("schedule/", viewport={"width": width, "height": 900})
    assert page.is_visible("#nav-sidebar")
    assert page.evaluate(
        "() => [...document.querySelectorAll('.gw-scroll')].map(it => it.scrollWidth - it.clientWidth)"
    ) == [0]
