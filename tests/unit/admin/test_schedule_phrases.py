from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.utils import timezone, translation

from django_graphile_worker.admin.schedule_phrases import run_time, schedule_in_words
from django_graphile_worker.crontab import CronItem


@pytest.mark.parametrize(
    ("language", "pattern", "words"),
    [
        ("en", "0 4 * * 1-5", "At 04:00, on Monday to Friday (Europe/Paris)"),
        ("de", "0 4 * * 1-5", "Um 04:00, Montag bis Freitag (Europe/Paris)"),
        ("fr", "*/15 * * * *", "Toutes les 15 minutes (Europe/Paris)"),
        ("de", "0,30 9-17 * 6-8 *", "In den Minuten 0 und 30, Stunden 9 bis 17, im Juni bis August (Europe/Paris)"),
        ("fr", "0 0 1 * *", "À 00:00, le jour 1 du mois (Europe/Paris)"),
    ],
)
def test_schedule__is_described_in_the_language_of_the_user(language: str, pattern: str, words: str) -> None:
    with translation.override(language):
        assert schedule_in_words(CronItem("task", pattern, time_zone="Europe/Paris")) == words


def test_run_time__names_the_zone_of_the_item_beside_that_of_the_user() -> None:
    item = CronItem("task", "0 4 * * *", time_zone="Europe/Paris")
    with timezone.override("UTC"):
        shown = run_time(item, datetime(2026, 11, 17, 3, tzinfo=UTC))
    assert shown == "Nov. 17, 2026, 3 a.m. UTC (4 a.m. CET)"
