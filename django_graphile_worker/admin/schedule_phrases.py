"""The description of a crontab item, and its next runs, in the language of the user."""

from __future__ import annotations

from datetime import UTC, datetime

from django.utils.translation import gettext, ngettext

from django_graphile_worker.admin import formatting
from django_graphile_worker.crontab import CronItem, describe
from django_graphile_worker.crontab.describe import Phrases


class TranslatedPhrases(Phrases):
    """The phrases of ``crontab.describe`` in the language of the user; the names of months and days are Django's."""

    def say(self, text: str, /, **values: object) -> str:
        return gettext(text) % values

    def say_number(self, one: str, many: str, number: int, /, **values: object) -> str:
        return ngettext(one, many, number) % values


def schedule_in_words(item: CronItem) -> str:
    return describe(item, TranslatedPhrases())


def run_time(item: CronItem, time: datetime) -> str:
    """Return the time of a run in the time zone of the user, and also in that of the item if the two differ."""
    return formatting.in_both_zones(time, item.zone or UTC)
