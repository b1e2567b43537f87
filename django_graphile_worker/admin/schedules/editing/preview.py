"""What a definition means: in words, and as its next times."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone
from django.utils.translation import gettext as _

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.schedule_phrases import TranslatedPhrases
from django_graphile_worker.admin.schedules.next_times import NUMBER, NextTime, mistake_in, shown_times
from django_graphile_worker.models import Schedule
from django_graphile_worker.schedules.times import Definition, first_time, next_times
from django_graphile_worker.schedules.words import in_words


@dataclass(frozen=True, slots=True)
class Preview:
    """The definition in words, and its next times.

    A program can write a line that no parser reads: then there is a mistake instead. ``condition`` tells what has to
    happen before the times count.
    """

    words: str
    times: tuple[NextTime, ...]
    condition: str = ""
    mistake: str = ""


def preview_of(
    definition: Definition | None, schedule: Schedule | None = None, *, is_enabled: bool = True
) -> Preview | None:
    """Return what a definition means from now on; None if there is none. ``schedule`` has the pause."""
    if definition is None:
        return None
    now = formatting.aware(timezone.now())
    try:
        words, zone = in_words(definition, TranslatedPhrases()), definition.zone
    except (OverflowError, ValueError) as error:
        return Preview("", (), mistake=mistake_in(definition, error))
    is_paused_forever = schedule is not None and schedule.is_paused_forever
    until = None if schedule is None or is_paused_forever else schedule.paused_until
    return Preview(
        words=words,
        times=shown_times(_times(definition, now, until), zone, now),
        condition=_condition(is_enabled=is_enabled, is_paused_forever=is_paused_forever),
    )


def preview_of_schedule(schedule: Schedule) -> Preview | None:
    """Return what the definition of a schedule means from now on."""
    return preview_of(Definition.of(schedule), schedule, is_enabled=schedule.is_enabled)


def _condition(*, is_enabled: bool, is_paused_forever: bool) -> str:
    if not is_enabled:
        return _("It is disabled. Once it is enabled, it runs at:")
    return _("It is paused. Once it is resumed, it runs at:") if is_paused_forever else ""


def _times(definition: Definition, now: datetime, paused_until: datetime | None) -> tuple[datetime, ...]:
    until = None if paused_until is None else formatting.aware(paused_until)
    try:
        first = first_time(definition, counts_from=now, paused_until=until)
        return () if first is None else (first, *next_times(definition, first, NUMBER - 1))
    except (OverflowError, ValueError):
        # A start at the end of Python's calendar.
        return ()
