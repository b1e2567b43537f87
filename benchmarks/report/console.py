"""The text of a table for a terminal or a log."""

from __future__ import annotations

from benchmarks.machine import MOST_LOAD
from benchmarks.results import Metric, Row, Table


def text_of(table: Table) -> str:
    """Return the rows with median and range of each metric, their ratio to the baseline, and the load average."""
    width = max([28, *(len(row.label) for row in table.rows)])
    lines = [table.title, *(f"  {row.label:{width}} {_figures(row, table)}" for row in table.rows)]
    lines += [f"  {note}" for note in table.notes]
    lines.append(f"  load average {table.load:.2f}")
    if table.load > MOST_LOAD:
        lines[-1] += ": warning: above 0.5, of which the benchmark itself is a part"
    return "\n".join(lines) + "\n"


def _figures(row: Row, table: Table) -> str:
    parts = [_figure(row, metric) for metric in table.metrics if row.samples.get(metric.key)]
    if table.baseline and row.key != table.baseline:
        first = table.metrics[0].key
        base = table.row(table.baseline)
        parts.append(f"{row.median(first) / base.median(first):.2f} of {base.label}")
    return "   ".join(parts)


def _figure(row: Row, metric: Metric) -> str:
    samples = row.samples[metric.key]
    text = f"{metric.shown(row.median(metric.key)):>9} {metric.unit}"
    if len(samples) > 1:
        text += f" ({metric.shown(min(samples))} to {metric.shown(max(samples))})"
    return text
