"""The charts of the overview: throughput, failures, wait time and run time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.charts.chart_data import Span, percentile, total
from django_graphile_worker.admin.charts.drawing import Chart, Series, bar_chart, line_chart
from django_graphile_worker.sql.statistics import Row


def draw_charts(rows: Sequence[Row], span: Span) -> list[Chart]:
    """Draw the charts from one row of statistics for each period."""
    labels = [_period_label(row.started_at, span) for row in rows]
    sums = total(rows)
    waits, durations = [row.waits for row in rows], [row.durations for row in rows]
    return [
        _throughput(rows, sums, labels),
        _failures(rows, sums, labels),
        _percentiles(pgettext("chart", "Wait time"), labels, waits, sums.waits),
        _percentiles(pgettext("chart", "Run time"), labels, durations, sums.durations),
    ]


def _throughput(rows: Sequence[Row], sums: Row, labels: Sequence[str]) -> Chart:
    summary = _("%(number)s jobs succeeded") % {"number": f"{sums.succeeded:,}"}
    series = [Series(_("succeeded"), "gw-succeeded", [float(row.succeeded) for row in rows])]
    return bar_chart(_("Throughput"), summary, labels, series, _whole_number)


def _failures(rows: Sequence[Row], sums: Row, labels: Sequence[str]) -> Chart:
    summary = _("%(number)s attempts failed") % {"number": f"{sums.failed + sums.permanently_failed:,}"}
    series = [
        Series(_("retried"), "gw-retrying", [float(row.failed) for row in rows]),
        Series(_("permanent"), "gw-failed", [float(row.permanently_failed) for row in rows]),
    ]
    return bar_chart(_("Failures"), summary, labels, series, _whole_number)


def _percentiles(title: str, labels: Sequence[str], histograms: Sequence[Sequence[int]], sums: Sequence[int]) -> Chart:
    p50, p95 = (formatting.duration(percentile(sums, share)) for share in (0.5, 0.95))
    series = [
        Series("p50", "gw-p50", [percentile(each, 0.5) for each in histograms]),
        Series("p95", "gw-p95", [percentile(each, 0.95) for each in histograms]),
    ]
    return line_chart(title, f"p50 {p50}, p95 {p95}", labels, series, formatting.duration)


def _whole_number(value: float) -> str:
    """Return a number of jobs; "" for a fraction: the values of grid lines may be fractions."""
    return f"{value:,.0f}" if value == int(value) else ""


def _period_label(started_at: int, span: Span) -> str:
    local = timezone.localtime(datetime.fromtimestamp(started_at, UTC))
    return f"{local:%a %H:%M}" if span.name == "week" else f"{local:%H:%M}"
