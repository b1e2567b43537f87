"""Entries in the admin's log."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User

from tests.support.admin_pages import act
from tests.support.factories import make_failed_job


def test_an_entry_belongs_to_the_user(client_with: Any) -> None:
    client = client_with("reschedule_job")
    act(client, "retry", make_failed_job("send"))
    assert LogEntry.objects.get().user == User.objects.get()
