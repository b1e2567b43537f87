"""The charts of the overview and of the page of a task: of all jobs, or of a task, a queue or a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.charts import (
    Chart,
    Period,
    Series,
    Span,
    make_chart,
    percentile,
    periods,
    rate,
    rows_by_period,
    total,
)
from django_graphile_worker.sql.statistics import QUEUE, TASK, WORKER, NamedRows, Row, SamplesOfPeriod

KINDS = (TASK, QUEUE, WORKER)
# The parameter of the form that selects the subject. Links have the kind as their parameter: ?queue=eu.
PARAMETER = "of"


@dataclass(frozen=True, slots=True)
class Subject:
    """A task, a queue or a worker, or (with an empty kind) all jobs."""

    kind: str = ""
    name: str = ""

    @property
    def value(self) -> str:
        """The value of the subject in the form."""
        return f"{self.kind}:{self.name}" if self.kind else ""

    @property
    def query(self) -> dict[str, str]:
        """The parameters of a URL that selects the subject."""
        return {self.kind: self.name} if self.kind else {}

    @property
    def title(self) -> str:
        titles = {
            "": _("Activity"),
            TASK: _("Activity of the task %(name)s"),
            QUEUE: _("Activity of the queue %(name)s"),
            WORKER: _("Activity of the worker %(name)s"),
        }
        return titles[self.kind] % {"name": self.name} if self.kind else titles[""]


def selected_subject(request: HttpRequest) -> Subject:
    """Return the subject that the form or a link selects; all jobs if there is none."""
    kind, _separator, name = request.GET.get(PARAMETER, "").partition(":")
    given = {kind: name} | {each: request.GET[each] for each in KINDS if each in request.GET}
    for each in KINDS:
        if chosen := given.get(each, "").replace("\x00", ""):
            return Subject(each, chosen)
    return Subject()


def subject_groups(names: Mapping[str, Sequence[str]], selected: Subject) -> list[tuple[str, list[tuple[Any, ...]]]]:
    """Return what the form offers, with the selected subject even if it has done nothing in this time.

    Each group has a label, and of each subject the value, the name, and whether it is selected.
    """
    labels = {TASK: _("Tasks"), QUEUE: _("Queues"), WORKER: _("Workers")}
    groups = []
    for kind, label in labels.items():
        offered = {*names.get(kind, ()), *([selected.name] if selected.kind == kind else [])}
        if subjects := [Subject(kind, name) for name in sorted(offered)]:
            groups.append((label, [(each.value, each.name, each == selected) for each in subjects]))
    return groups


Rows = Sequence[Row | None]


@dataclass(frozen=True, slots=True)
class ChartFigures:
    """What the charts show: counts of ended runs and, for all jobs together, samples of the backlog."""

    counts: NamedRows
    # None for the charts of a task, a queue or a worker: the samples count all jobs.
    samples: Sequence[SamplesOfPeriod] | None


def draw_charts(figures: ChartFigures, span: Span, now: datetime) -> list[Chart]:
    """Draw all charts of a time span that ends now, the most telling first."""
    starts = span.starts(now)
    axis = periods(starts, span)
    rows = rows_by_period(figures.counts.rows, starts, figures.counts.unknown_starts)
    sums = total(rows)
    samples = None if figures.samples is None else {each.started_at: each for each in figures.samples}
    return [
        _throughput(rows, sums, axis, span),
        *([] if samples is None else [_backlog(samples, starts, axis, span)]),
        _run_time(rows, sums, axis, span),
        _waiting_time(rows, sums, axis, span),
        _failures(rows, sums, axis, span),
        *([_expired(rows, sums, axis, span)] if sums.expired else []),
        *([] if samples is None else [_added(samples, starts, axis, span)]),
    ]


def _throughput(rows: Rows, sums: Row, axis: Sequence[Period], span: Span) -> Chart:
    summary = ngettext("%(number)s job succeeded", "%(number)s jobs succeeded", sums.succeeded)
    series = [Series(_("succeeded"), "gw-succeeded", [row and float(row.succeeded) for row in rows])]
    return make_chart(
        "throughput",
        _("Throughput"),
        summary=summary % {"number": formatting.number(sums.succeeded)},
        unit=_("%(unit)s; cancelled jobs are not counted") % {"unit": _jobs_per_period(span)},
        series=[*series, *_failed_series(rows)],
        periods=axis,
        format_value=formatting.number,
        is_stacked=True,
    )


def expired_jobs(number: int) -> str:
    return ngettext("%(number)s expired", "%(number)s expired", number) % {"number": formatting.number(number)}


def _failures(rows: Rows, sums: Row, axis: Sequence[Period], span: Span) -> Chart:
    number = sums.failures
    summary = ngettext("%(number)s attempt failed", "%(number)s attempts failed", number)
    return make_chart(
        "failures",
        _("Failures"),
        summary=summary % {"number": formatting.number(number)},
        unit=_attempts_per_period(span),
        series=_failed_series(rows),
        periods=axis,
        format_value=formatting.number,
        is_stacked=True,
    )


def _expired(rows: Rows, sums: Row, axis: Sequence[Period], span: Span) -> Chart:
    return make_chart(
        "expired",
        pgettext("chart", "Expired"),
        summary=expired_jobs(sums.expired),
        unit=_("%(unit)s; not started in time") % {"unit": _jobs_per_period(span)},
        series=[Series(_("expired"), "gw-expired", [row and float(row.expired) for row in rows])],
        periods=axis,
        format_value=formatting.number,
        is_stacked=True,
    )


def _failed_series(rows: Rows) -> list[Series]:
    retrying = [row and float(row.failed) for row in rows]
    failed = [row and float(row.permanently_failed) for row in rows]
    return [
        Series(pgettext("attempts", "retrying"), "gw-retrying", retrying),
        Series(pgettext("attempts", "failed"), "gw-failed", failed, is_striped=True),
    ]


def _waiting_time(rows: Rows, sums: Row, axis: Sequence[Period], span: Span) -> Chart:
    histograms = [row and row.waits for row in rows]
    title, meaning = pgettext("chart", "Waiting time"), _("from due to started")
    return _percentiles("waiting", title, meaning, histograms, sums.waits, axis, span)


def _run_time(rows: Rows, sums: Row, axis: Sequence[Period], span: Span) -> Chart:
    histograms = [row and row.durations for row in rows]
    title, meaning = pgettext("chart", "Run time"), _("from started to ended")
    return _percentiles("running", title, meaning, histograms, sums.durations, axis, span)


def _percentiles(
    name: str,
    title: str,
    meaning: str,
    histograms: Sequence[Sequence[int] | None],
    sums: Sequence[int],
    axis: Sequence[Period],
    span: Span,
) -> Chart:
    p50, p95 = (formatting.duration(percentile(sums, share)) for share in (0.5, 0.95))
    series = [
        Series(label, css_class, [percentile(each, share) if each else None for each in histograms])
        for label, css_class, share in (("p50", "gw-p50", 0.5), ("p95", "gw-p95", 0.95))
    ]
    return make_chart(
        name,
        title,
        summary=f"p50 {p50}, p95 {p95}",
        unit=_("%(meaning)s, %(buckets)s") % {"meaning": meaning, "buckets": _buckets(span)},
        series=series,
        periods=axis,
        format_value=formatting.duration,
    )


def _backlog(
    samples: Mapping[int, SamplesOfPeriod], starts: Sequence[int], axis: Sequence[Period], span: Span
) -> Chart:
    found = [samples.get(start) for start in starts]
    names = {
        "ready": (_("ready"), "gw-ready"),
        "retrying": (pgettext("attempts", "retrying"), "gw-waits-for-retry"),
        "running": (_("running"), "gw-running-jobs"),
    }
    series = [
        Series(label, css_class, [each and float(getattr(each, name)) for each in found])
        for name, (label, css_class) in names.items()
    ]
    is_estimate = any(each.is_estimate for each in found if each is not None)
    unit = _("jobs, highest count of a minute, %(buckets)s") % {"buckets": _buckets(span)}
    return make_chart(
        "backlog",
        pgettext("chart", "Backlog"),
        summary=_("partly estimated") if is_estimate else "",
        unit=unit,
        series=series,
        periods=axis,
        format_value=formatting.number,
    )


def _added(samples: Mapping[int, SamplesOfPeriod], starts: Sequence[int], axis: Sequence[Period], span: Span) -> Chart:
    found = [samples.get(start) for start in starts]
    values = [each and each.added_per_second for each in found]
    return make_chart(
        "added",
        pgettext("chart", "Added"),
        summary="",
        unit=_("jobs added or replaced per second, %(buckets)s") % {"buckets": _buckets(span)},
        series=[Series(_("added per second"), "gw-added", values)],
        periods=axis,
        format_value=rate,
    )


def _jobs_per_period(span: Span) -> str:
    texts = {
        "hour": _("jobs per minute, 1-minute buckets"),
        "day": _("jobs per 10 minutes, 10-minute buckets"),
        "week": _("jobs per hour, 1-hour buckets"),
    }
    return texts[span.name]


def _attempts_per_period(span: Span) -> str:
    texts = {
        "hour": _("failed attempts per minute, 1-minute buckets"),
        "day": _("failed attempts per 10 minutes, 10-minute buckets"),
        "week": _("failed attempts per hour, 1-hour buckets"),
    }
    return texts[span.name]


def _buckets(span: Span) -> str:
    return {"hour": _("1-minute buckets"), "day": _("10-minute buckets"), "week": _("1-hour buckets")}[span.name]
