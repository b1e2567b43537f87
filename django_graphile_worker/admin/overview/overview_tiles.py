"""The figures at the top of the overview. A number that takes too long to count is marked as approximate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.charts.chart import whole_number
from django_graphile_worker.admin.overview.health import is_alive
from django_graphile_worker.admin.pages import PageAdmin
from django_graphile_worker.sql.inspection.job_search.counts import Count, OldestReady
from django_graphile_worker.sql.inspection.job_search.criteria import State
from django_graphile_worker.sql.inspection.lock_holders import Holder
from django_graphile_worker.sql.statistics import Sample

# If the oldest ready job has waited for longer than this, its tile is highlighted.
LATE_SECONDS = 60
# An estimate is not more exact than this.
DIGITS_OF_ESTIMATE = 3
# The columns of a sample by state.
COLUMNS = {
    State.READY: "ready",
    State.SCHEDULED: "scheduled",
    State.RETRYING: "retrying",
    State.FAILED: "permanently_failed",
}


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure, its label, and the address of the page with its details; ``note`` says how it was counted."""

    label: str
    value: str
    url: str
    css_class: str = ""
    note: str = ""


def tiles(
    page: PageAdmin,
    request: HttpRequest,
    counts: Mapping[State, Count],
    sample: Sample | None,
    oldest: OldestReady | None,
    holders: Sequence[Holder],
    now: datetime,
) -> list[Tile]:
    """Return the tiles of all jobs, in the order of a job's life."""
    states = {
        State.READY: _("Ready"),
        **({State.LIMITED: _("Limited")} if counts[State.LIMITED].number else {}),
        State.SCHEDULED: _("Scheduled"),
        State.RUNNING: _("Running"),
        State.RETRYING: _("Retrying"),
        State.FAILED: _("Failed"),
    }
    found = [_state_tile(page, request, state, label, counts[state], sample, now) for state, label in states.items()]
    return [found[0], oldest_ready_tile(page, request, oldest, now), *found[1:], workers_tile(page, request, holders)]


def workers_tile(page: PageAdmin, request: HttpRequest, holders: Sequence[Holder]) -> Tile:
    alive = sum(is_alive(holder) for holder in holders)
    return Tile(_("Workers alive"), whole_number(alive), page.url(request, "worker"), "" if alive else "gw-tile-failed")


def oldest_ready_tile(page: PageAdmin, request: HttpRequest, oldest: OldestReady | None, now: datetime) -> Tile:
    """Return the tile of the job that has waited longest, of all jobs that no pause keeps from starting."""
    seconds = _seconds_since(oldest.run_at, now) if oldest else None
    is_late = seconds is not None and seconds > LATE_SECONDS
    url = page.url(request, "job", "change", oldest.id) if oldest else ""
    return Tile(_("Oldest ready job"), formatting.duration(seconds, 1), url, "gw-tile-late" if is_late else "")


def _state_tile(
    page: PageAdmin,
    request: HttpRequest,
    state: State,
    label: str,
    count: Count,
    sample: Sample | None,
    now: datetime,
) -> Tile:
    css_class = f"gw-tile-{state.value}" if count.number else "gw-tile-zero"
    url = page.url(request, "job", state=state.value)
    column = COLUMNS.get(state)
    if not count.is_more or sample is None or column is None:
        return Tile(label, formatting.count(count), url, css_class)
    number, is_estimate = getattr(sample, column), column in sample.estimated
    age = formatting.duration(_seconds_since(sample.sampled_at, now), 1)
    note = _("Estimated %(age)s ago") if is_estimate else _("Counted %(age)s ago")
    return Tile(label, about(max(number, count.number), is_estimate=is_estimate), url, css_class, note % {"age": age})


def about(number: int, *, is_estimate: bool) -> str:
    """Return a number that was counted some seconds ago, or estimated: an estimate is rounded."""
    rounded = round(number, min(DIGITS_OF_ESTIMATE - len(str(number)), 0)) if is_estimate else number
    return _("about %(number)s") % {"number": whole_number(rounded)}


def _seconds_since(value: datetime, now: datetime) -> float:
    began, ended = [timezone.make_aware(each) if timezone.is_naive(each) else each for each in (value, now)]
    return max(0.0, (ended - began).total_seconds())
