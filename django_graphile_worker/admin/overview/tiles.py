"""The figures at the top of the overview and of the page of a task. What takes too long to count is approximate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.pages import PageAdmin
from django_graphile_worker.sql.inspection.job_list import STATES, Count, OldestReady, State
from django_graphile_worker.sql.inspection.lock_holders import Slots
from django_graphile_worker.sql.schedules.listing import ScheduleState
from django_graphile_worker.sql.statistics import Sample

# If the oldest ready job has waited for longer than this, its tile is highlighted.
LATE_SECONDS = 60
# A number of some seconds ago, and an estimate, are not more exact than this.
DIGITS_OF_COUNT, DIGITS_OF_ESTIMATE = 3, 2
# The columns of a sample by state.
COLUMNS = {
    State.READY: "ready",
    State.SCHEDULED: "scheduled",
    State.RETRYING: "retrying",
    State.FAILED: "permanently_failed",
}
# The number of jobs in each state, if the database took too long to count them.
UNCOUNTED: Mapping[State, Count] = {state: Count(0, is_more=True) for state in STATES}


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure, its label, and the URL of the page with its details; ``note`` says how it was counted."""

    label: str
    value: str
    url: str
    css_class: str = ""
    note: str = ""


def job_tiles(
    page: PageAdmin,
    request: HttpRequest,
    counts: Mapping[State, Count],
    sample: Sample | None,
    oldest: OldestReady | None,
    now: datetime,
    *,
    query: str = "",
) -> list[Tile]:
    """Return the tiles of the jobs that a search finds, in the order of a job's life."""
    labels = {
        State.READY: _("Ready"),
        **({State.LIMITED: _("Limited")} if counts[State.LIMITED].number else {}),
        State.SCHEDULED: _("Scheduled"),
        State.RUNNING: _("Running"),
        State.RETRYING: _("Retrying"),
        State.FAILED: _("Failed"),
    }
    found = []
    for state, label in labels.items():
        value, note = _counted(state, counts[state], sample, now)
        css_class = f"gw-tile-{state.value}" if counts[state].number else "gw-tile-zero"
        url = page.url(request, "job", q=query, state=state.value)
        found.append(Tile(label, value, url, css_class, note))
    return [found[0], _oldest_tile(page, request, oldest, now), *found[1:]]


def _counted(state: State, count: Count, sample: Sample | None, now: datetime) -> tuple[str, str]:
    """Return the number of jobs in a state, and what it is based on if it is not exact."""
    column = COLUMNS.get(state)
    if not count.is_more or sample is None or column is None:
        return formatting.EMPTY_VALUE if count == UNCOUNTED[state] else formatting.count(count), ""
    number, is_estimate = getattr(sample, column), column in sample.estimated
    return about(max(number, count.number), is_estimate=is_estimate), age_of(sample, now, is_estimate=is_estimate)


def _oldest_tile(page: PageAdmin, request: HttpRequest, oldest: OldestReady | None, now: datetime) -> Tile:
    """Return the tile of the job that has waited longest, of all jobs that no pause keeps from starting."""
    seconds = _seconds_since(oldest.run_at, now) if oldest else None
    is_late = seconds is not None and seconds > LATE_SECONDS
    url = page.url(request, "job", "change", oldest.id) if oldest else ""
    return Tile(_("Oldest ready job"), formatting.duration(seconds, 1), url, "gw-tile-late" if is_late else "")


def worker_tiles(
    page: PageAdmin, request: HttpRequest, slots: Slots, label: str = "", *, versions: Mapping[str, int] | None = None
) -> list[Tile]:
    """Return the tiles of the live workers, or of some of them, and of their slots; during a deploy, with versions."""
    url, note = page.url(request, "worker"), _("Jobs that run, and how many the live workers run at the same time")
    workers = formatting.number(slots.workers)
    label = label or ngettext("Worker alive", "Workers alive", slots.workers)
    if versions and len(versions) > 1:
        label = _("Workers alive, of %(number)s versions") % {"number": formatting.number(len(versions))}
    css_class = "" if slots.workers else "gw-tile-failed"
    found = [Tile(label, workers, url, css_class, formatting.versions(versions or {}))]
    if slots.total:
        css_class = "gw-tile-late" if slots.are_all_busy else "gw-tile-running" if slots.in_use else ""
        found.append(Tile(_("Slots in use"), formatting.part(slots.in_use, slots.total), url, css_class, note))
    return found


def schedule_tiles(page: PageAdmin, request: HttpRequest, *, failing: int, missed: int) -> list[Tile]:
    """Return a tile for each kind of problem that schedules have."""
    tiles = []
    if failing:
        url = page.url(request, "schedule", state=ScheduleState.FAILING.value)
        note = _("Schedules whose last run failed")
        tiles.append(Tile(_("Schedules failing"), formatting.number(failing), url, "gw-tile-failed", note))
    if missed:
        url = page.url(request, "schedule", state=ScheduleState.MISSED.value)
        note = _("Schedules with times of the last 24 hours at which no worker ran")
        tiles.append(Tile(_("Schedules missed"), formatting.number(missed), url, "gw-tile-late", note))
    return tiles


def about(number: int, *, is_estimate: bool) -> str:
    """Return a number that was counted some seconds ago, or estimated, and is rounded therefore."""
    digits = DIGITS_OF_ESTIMATE if is_estimate else DIGITS_OF_COUNT
    return _("about %(number)s") % {"number": formatting.number(round(number, min(digits - len(str(number)), 0)))}


def age_of(sample: Sample, now: datetime, *, is_estimate: bool) -> str:
    """Say how long ago a number was counted or estimated."""
    note = _("Estimated %(age)s ago") if is_estimate else _("Counted %(age)s ago")
    return note % {"age": formatting.duration(_seconds_since(sample.sampled_at, now), 1)}


def _seconds_since(value: datetime, now: datetime) -> float:
    return max(0.0, (formatting.aware(now) - formatting.aware(value)).total_seconds())
