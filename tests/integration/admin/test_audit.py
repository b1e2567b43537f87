"""Entries in the admin's log."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone, translation

from django_graphile_worker.admin.audit import Message, message_of
from tests.support.admin_pages import act, job_url, text
from tests.support.factories import make_failed_job, make_job


def test_an_entry_belongs_to_the_user(client_with: Any) -> None:
    client = client_with("reschedule_job")
    act(client, "retry", make_failed_job("send"))
    assert LogEntry.objects.get().user == User.objects.get()


def rescheduled(client: Client) -> tuple[int, LogEntry]:
    job_id = make_job("send")
    act(client, "reschedule", job_id, confirmed="1", run_at="2026-11-16T09:00:00", priority="1234")
    return job_id, LogEntry.objects.get()


@pytest.mark.parametrize(
    ("language", "zone", "sentence"),
    [
        ("en", "UTC", "Rescheduled: run at Nov. 16, 2026, 9 a.m. UTC, priority 1,234"),
        ("de", "Europe/Berlin", "Neu geplant: Ausführung am 16. November 2026 10:00 CET, Priorität 1.234"),
        ("fr", "Europe/Paris", "exécution le 16 novembre 2026 10:00 CET"),
    ],
)
def test_an_entry_is_a_sentence_in_the_language_and_the_time_zone_of_its_reader(
    admin_page: Client, language: str, zone: str, sentence: str
) -> None:
    with translation.override("fr"):
        job_id, entry = rescheduled(admin_page)
    with translation.override(language), timezone.override(zone):
        assert sentence in message_of(entry)
        assert sentence in text(admin_page.get(job_url(job_id)))


def test_pages_of_django_show_a_sentence_as_well(admin_page: Client) -> None:
    _job_id, entry = rescheduled(admin_page)
    assert entry.get_change_message() == "Changed Run at and Priority."
    with translation.override("de"):
        assert entry.get_change_message() == "Ausführen am und Priorität geändert."


@pytest.mark.parametrize(
    "stored", ["Reschedule (run_at=2026-11-16 09:00:00+00:00).", "[1, 2", "[]", "[{}]", '[{"a": 1}]']
)
def test_entries_of_older_versions_are_shown_as_they_are(admin_page: Client, stored: str) -> None:
    job_id, entry = rescheduled(admin_page)
    LogEntry.objects.update(change_message=stored)
    entry.refresh_from_db()
    assert message_of(entry) == entry.get_change_message()
    assert admin_page.get(job_url(job_id)).status_code == 200


def test_a_message_can_be_shown_at_once() -> None:
    parts = [Message("%(number)s at once", {"number": 3000}), Message("%(rate)s", {"rate": "100/m"})]
    assert str(Message("Numbers: %(numbers)s", {"numbers": parts})) == "Numbers: 3,000 at once, 100/m"
    time = datetime(2026, 11, 16, 9, tzinfo=UTC)
    assert str(Message("Paused until %(time)s.", {"time": time})) == "Paused until Nov. 16, 2026, 9 a.m. UTC."


def test_an_entry_has_json_that_django_reads(admin_page: Client) -> None:
    _job_id, entry = rescheduled(admin_page)
    (parts,) = json.loads(entry.change_message)
    assert parts["changed"] == {"fields": ["Run at", "Priority"]}
