"""The last runs of a schedule as a strip of small shapes, and as a list.

Each outcome has a colour, a shape and a word. The height of a bar tells how long the run took, in comparison with the
other runs of the strip.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext_lazy

from django_graphile_worker.admin import formatting
from django_graphile_worker.sql.schedules.runs import Run

WIDTH, HEIGHT = 8, 24
SHORTEST_BAR, LONGEST_BAR = 5.0, 20.0
# The list under the strip has the newest of its runs.
MAX_LISTED = 10

# The words for the values of RunOutcome.
NAMES = {
    "succeeded": gettext_lazy("Succeeded"),
    "failed": gettext_lazy("Failed"),
    "retrying": gettext_lazy("Retrying"),
    "running": gettext_lazy("Running"),
    "waiting": pgettext_lazy("run", "Waiting"),
    "cancelled": gettext_lazy("Cancelled"),
    "expired": gettext_lazy("Expired"),
    "removed": gettext_lazy("Removed"),
    "replaced": pgettext_lazy("run", "Replaced"),
    "unknown": pgettext_lazy("run", "Not recorded"),
    "overlap": pgettext_lazy("run", "Skipped"),
    "missed": pgettext_lazy("run", "Missed"),
    "unknown_task": gettext_lazy("Unknown task"),
}
# The outcomes whose shape is a bar.
FILLED, OUTLINED = frozenset({"succeeded", "failed"}), frozenset({"running", "waiting", "retrying"})
# Paths of the other shapes, in a square of six whose lower left corner is the place of the shape.
PATHS = {
    "missed": "m0 -5 l5 5 m0 -5 l-5 5",
    "overlap": "m0 -2.5 a2.5 2.5 0 1 0 5 0 a2.5 2.5 0 1 0 -5 0",
    "unknown_task": "m2.5 -6 l3 3 l-3 3 l-3 -3 z",
    "cancelled": "m0 -2.5 h5",
    "expired": "m0 -2.5 h5",
    "removed": "m0 -2.5 h5",
    "replaced": "m1 -3.5 h3 v3 h-3 z",
    "unknown": "m1 -3.5 h3 v3 h-3 z",
}


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A run as the strip and the list under it tell it."""

    look: str
    outcome: str
    exact: str
    duration: str
    notes: str
    job: str
    job_url: str


@dataclass(frozen=True, slots=True)
class Strip:
    """The last runs, the newest first; the image has the newest at its end."""

    image: SafeString
    # How many runs of the image had which outcome, in words.
    summary: str
    runs: tuple[ShownRun, ...]
    # How long ago the newest was.
    last_time: SafeString | str

    @property
    def last(self) -> ShownRun:
        return self.runs[0]


def make_strip(runs: Sequence[Run], job_url: Callable[[int], str], now: datetime) -> Strip | None:
    """Return the strip of runs, the newest first; None without runs. `job_url` returns "" for a job without a page."""
    if not runs:
        return None
    names = {outcome.value: str(NAMES[outcome.value]) for outcome in {run.outcome for run in runs}}
    shown = [_shown(run, names, job_url if place < MAX_LISTED else None) for place, run in enumerate(runs)]
    return Strip(
        image=_image(runs, shown),
        summary=_summary(runs, names),
        runs=tuple(shown[:MAX_LISTED]),
        last_time=formatting.relative_time(runs[0].tick, now),
    )


def _summary(runs: Sequence[Run], names: Mapping[str, str]) -> str:
    found = Counter(run.outcome.value for run in runs)
    each = [
        _("%(outcome)s: %(number)s") % {"outcome": names[look], "number": formatting.number(number)}
        for look, number in found.most_common()
    ]
    parts = ", ".join(each)
    text = ngettext("Last run: %(outcomes)s", "Last %(number)s runs: %(outcomes)s", len(runs))
    return text % {"number": formatting.number(len(runs)), "outcomes": parts}


def _shown(run: Run, names: Mapping[str, str], job_url: Callable[[int], str] | None) -> ShownRun:
    look = run.outcome.value
    return ShownRun(
        look=look,
        outcome=names[look],
        exact=formatting.exact_time(run.tick),
        duration="" if run.duration is None else formatting.duration(run.duration),
        notes=_notes(run),
        job="" if run.job_id is None else f"#{run.job_id}",
        job_url="" if run.job_id is None or job_url is None else job_url(run.job_id),
    )


def _notes(run: Run) -> str:
    """Return what the outcome does not say."""
    if run.kind == "by_hand":
        return _("run now by %(user)s") % {"user": run.run_by} if run.run_by else _("run now")
    if run.kind == "late":
        return _("late")
    if run.kind == "overlap":
        return _("the last run was not over")
    if run.kind in ("missed", "unknown_task") and run.number > 1:
        text = ngettext("%(number)s time", "%(number)s times", run.number)
        return text % {"number": formatting.number(run.number)}
    return ""


def _image(runs: Sequence[Run], shown: Sequence[ShownRun]) -> SafeString:
    """Draw the runs from the oldest to the newest."""
    longest = max((run.duration or 0.0 for run in runs), default=0.0)
    pairs = [*zip(runs, shown, strict=True)][::-1]
    shapes = mark_safe("".join(_shape(*pair, index, longest) for index, pair in enumerate(pairs)))
    width = WIDTH * len(runs)
    template = '<svg class="gw-strip" width="{0}" height="{1}" viewBox="0 0 {0} {1}" aria-hidden="true">{2}</svg>'
    return format_html(template, width, HEIGHT, shapes)


# There are a thousand shapes on a page: format_html would take a quarter of the time of the page. All values but the
# title are names and numbers of this module.
def _shape(run: Run, shown: ShownRun, index: int, longest: float) -> str:
    title = escape(" · ".join(filter(None, (shown.exact, shown.outcome, shown.duration, shown.notes))))
    mark = _mark(run, shown.look, index * WIDTH + 1, longest)
    place = f'<path class="gw-run-place" d="M{index * WIDTH} 0h{WIDTH}v{HEIGHT}h-{WIDTH}z"/>'
    return f'<g class="gw-run gw-run-{shown.look}"><title>{title}</title>{place}{mark}</g>'


def _mark(run: Run, look: str, left: int, longest: float) -> str:
    if look not in FILLED and look not in OUTLINED:
        return f'<path d="M{left} {HEIGHT - 2} {PATHS[look]}"/>'
    height = _height(run.duration, longest)
    top = HEIGHT - 1 - height
    bar = f'<rect x="{left}" y="{top:.1f}" width="6" height="{height:.1f}"/>'
    # A cross over the bar of a failure, so that it differs from success without its colour.
    return f'{bar}<path d="M{left + 1} {top + 0.6:.1f} l4 4 m0 -4 l-4 4"/>' if look == "failed" else bar


def _height(seconds: float | None, longest: float) -> float:
    """Return the height of a bar. The root keeps runs apart that differ by orders of magnitude."""
    if not seconds or not longest:
        return SHORTEST_BAR
    return SHORTEST_BAR + (LONGEST_BAR - SHORTEST_BAR) * math.sqrt(seconds / longest)
