"""The schedules of the demo: one of each kind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from django_graphile_worker.models import Schedule


def examples() -> list[dict[str, Any]]:
    """Return the fields of each schedule."""
    return [
        {
            "name": "Exchange rates",
            "task": "fetch_exchange_rates",
            "payload": {"currency": "EUR"},
            "interval": timedelta(seconds=10),
            "overlap": "skip",
            "description": "An interval: fires every ten seconds.",
        },
        {
            "name": "Newsletter for customers",
            "task": "send_newsletter",
            "payload": {"subject": "New in the shop", "audience": "customers", "most_items": 5},
            "cron": "0 9 * * MON-FRI",
            "time_zone": "Europe/Berlin",
            "missed": "once",
            "description": "A cron line: weekdays at nine, by the clock of Berlin.",
        },
        {
            "name": "Newsletter for staff",
            "task": "send_newsletter",
            "payload": {"subject": "Stock of the week", "audience": "staff"},
            "cron": "@weekly",
            "time_zone": "America/New_York",
            "missed": "all",
            "missed_within": timedelta(days=14),
        },
        {
            "name": "Search index",
            "task": "refresh_search_index",
            "cron": "*/5 * * * *",
            "overlap": "queue",
        },
        {
            "name": "Launch of the summer sale",
            "task": "send_newsletter",
            "payload": {"subject": "Summer sale"},
            "run_at": (timezone.now() + timedelta(days=30)).replace(minute=0, second=0, microsecond=0),
            "description": "A single time.",
        },
        {
            "name": "Invoices",
            "task": "print_invoice",
            "payload": {"customer": "Ada"},
            "interval": timedelta(minutes=1),
            "description": "Fails at each run. The task is not schedulable, so the admin shows it and changes nothing.",
        },
        {
            "name": "Reviews",
            "task": "ask_for_review",
            "cron": "0 12 * * *",
            "is_enabled": False,
            "description": "Disabled.",
        },
    ]


def make() -> None:
    """Make the schedules that do not exist; what a user has changed stays."""
    known = set(Schedule.objects.values_list("name", flat=True))
    Schedule.objects.bulk_create(Schedule(**values) for values in examples() if values["name"] not in known)
