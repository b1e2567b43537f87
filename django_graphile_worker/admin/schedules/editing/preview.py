"""What a definition means: in words, and as its next times."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.schedule_phrases import TranslatedPhrases
from django_graphile_worker.admin.schedules.next_times import NUMBER, NextTime, shown_times
from django_graphile_worker.schedules.definition import Definition
from django_graphile_worker.schedules.times import next_times
from django_graphile_worker.schedules.words import in_words


@dataclass(frozen=True, slots=True)
class Preview:
    """The definition in words, and its next times."""

    words: str
    times: tuple[NextTime, ...]


def preview_of(definition: Definition | None) -> Preview | None:
    """Return what a definition means from now on; None if there is none."""
    if definition is None:
        return None
    now = formatting.aware(timezone.now())
    return Preview(
        words=in_words(definition, TranslatedPhrases()),
        times=shown_times(_times(definition, now), definition.zone, now),
    )


def _times(definition: Definition, now: datetime) -> tuple[datetime, ...]:
    try:
        return next_times(definition, now, NUMBER)
    except (OverflowError, ValueError):
        # A start at the end of Python's calendar, or a time zone that this machine does not know.
        return ()
