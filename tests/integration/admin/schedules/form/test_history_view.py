"""The history of changes of a schedule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from django_graphile_worker.models import Schedule, changed_by
from tests.support.admin_pages import body, text
from tests.support.schedule_forms import SCHEDULES, history_url, make_schedule

pytestmark = pytest.mark.django_db


def test_history__tells_who_changed_which_field_from_what_to_what(client_of: Any) -> None:
    schedule = make_schedule(payload={"month": 5})
    with changed_by("maria"):
        Schedule.objects.update(
            cron=None,
            interval=timedelta(minutes=90),
            starts_at=datetime(2030, 7, 1, 7, tzinfo=UTC),
            missed="all",
            missed_within=timedelta(days=2),
            is_enabled=False,
            payload={"month": 6, "password": "hunter2"},
        )
    Schedule.objects.update(paused_until=Schedule.FOREVER)
    page = client_of("reports:plain").get(history_url(schedule))
    latest, first, added = page.context["changes"]
    assert (latest.by, first.by, added.is_addition) == ("", "maria", True)
    assert [(each.label, each.before, each.after) for each in latest.fields] == [
        ("Paused until", "–", "until someone resumes it")  # noqa: RUF001
    ]
    found = {each.label: (each.before, each.after) for each in first.fields}
    assert found == {
        "Enabled": ("Yes", "No"),
        "Cron line": ("0 9 * * 1-5", "–"),  # noqa: RUF001
        "Interval": ("–", "1h30m"),  # noqa: RUF001
        "Starts at": ("–", "July 1, 2030, 7 a.m. UTC (9 a.m. CEST)"),  # noqa: RUF001
        "Missed times": ("Skip them", "Run all of them within a time"),
        "Missed within": ("–", "2d"),  # noqa: RUF001
        "Payload": ('{\n  "month": 5\n}', '{\n  "month": 6,\n  "password": "••••••"\n}'),
    }
    assert "maria" in text(page)
    assert "hunter2" not in body(page)


def test_history__has_no_payload_without_the_permission(client_of: Any) -> None:
    schedule = make_schedule(payload={"month": "hunter1"})
    Schedule.objects.update(payload={"month": "hunter2"})
    page = client_of(permissions=("view_schedule",)).get(history_url(schedule))
    assert "Payload Changed. You do not have permission to see payloads." in text(page)
    assert "hunter" not in body(page)


def test_history__leaves_out_large_payloads(client_of: Any) -> None:
    schedule = make_schedule(payload={"text": "x" * 30_000})
    Schedule.objects.update(payload={"text": "y" * 30_000})
    page = client_of("reports:plain").get(history_url(schedule))
    assert "Changed. The payload is too long to be shown." in text(page)


def test_history__says_that_earlier_changes_are_not_kept(client_of: Any) -> None:
    schedule = make_schedule()
    for number in range(101):
        Schedule.objects.update(description=str(number))
    page = client_of("reports:plain").get(history_url(schedule))
    assert len(page.context["changes"]) == 100
    assert "Earlier changes are not kept." in text(page)


def test_history__shows_markup_as_text(client_of: Any) -> None:
    nasty = "<script>alert(1)</script>"
    schedule = make_schedule(name=nasty, payload={nasty: nasty})
    with changed_by(nasty):
        Schedule.objects.update(description=nasty, payload={})
    assert nasty not in body(client_of("reports:plain").get(history_url(schedule)))


def test_history__needs_the_permission_to_view(client_of: Any) -> None:
    schedule = make_schedule()
    assert client_of("reports:plain", permissions=("add_schedule",)).get(history_url(schedule)).status_code == 403


def test_history__of_a_deleted_schedule_is_for_superusers(admin_page: Client, client_of: Any) -> None:
    schedule = make_schedule()
    address, number = history_url(schedule), schedule.pk
    with changed_by("maria"):
        schedule.delete()
    page = admin_page.get(address)
    assert page.context["changes"][0].is_deletion
    assert "Changes of nightly" in text(page)
    assert client_of("reports:plain").get(address).status_code == 302
    for missing in (str(number + 1), "x", "9" * 30):
        assert admin_page.get(f"{SCHEDULES}{missing}/history/").status_code == 302
