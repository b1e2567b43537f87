"""What the overview says about schedules and items of the crontab: tiles of those that fail or missed times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.charts.chart import whole_number
from django_graphile_worker.admin.late_schedules import late_items
from django_graphile_worker.admin.overview.overview_tiles import Tile
from django_graphile_worker.admin.pages import PageAdmin
from django_graphile_worker.admin.project_items import read_crontab
from django_graphile_worker.sql.schedules import listing
from django_graphile_worker.sql.schedules.from_code import KnownCrontab
from django_graphile_worker.sql.schedules.listing import LateSchedule, ScheduleState


@dataclass(frozen=True, slots=True)
class ScheduleFigures:
    """How many schedules fail, how many missed times in the last day, and those that are late."""

    failing: int
    missed: int
    late: Sequence[LateSchedule]


def read_schedule_figures(cursor: Any, *, schema: str) -> ScheduleFigures:
    names = [item.name for item in read_crontab()[0]]
    if not names and not listing.is_any(cursor, schema=schema):
        return ScheduleFigures(0, 0, ())
    counts = listing.counts(cursor, schema=schema, crontab_identifiers=names)
    late = listing.late(cursor, schema=schema) if counts.late else ()
    return ScheduleFigures(counts.failing, counts.missed, late)


def schedule_tiles(page: PageAdmin, request: HttpRequest, found: ScheduleFigures) -> list[Tile]:
    """Return a tile for each kind of problem that there is."""
    tiles = []
    if found.failing:
        url = page.url(request, "schedule", state=ScheduleState.FAILING.value)
        note = _("Schedules whose last run failed")
        tiles.append(Tile(_("Schedules failing"), whole_number(found.failing), url, "gw-tile-failed", note))
    if found.missed:
        url = page.url(request, "schedule", state=ScheduleState.MISSED.value)
        note = _("Schedules with times of the last 24 hours at which no worker ran")
        tiles.append(Tile(_("Schedules missed"), whole_number(found.missed), url, "gw-tile-late", note))
    return tiles


def late_names(
    known: Mapping[str, KnownCrontab], late: Sequence[LateSchedule], now: datetime
) -> list[tuple[str, float]]:
    """Return the names of what is late, the longest late first, each with the seconds since it was due."""
    of_code = [(item.name, seconds) for item, seconds in late_items(read_crontab()[0], known, now)]
    aware = formatting.aware(now)
    of_database = [(each.name, (aware - each.due_at).total_seconds()) for each in late]
    return sorted([*of_code, *of_database], key=lambda pair: -pair[1])
