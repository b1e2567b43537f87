"""The parts of pages that are generated from the recorded results.

A part is between ``<!-- figures:name -->`` and ``<!-- /figures -->``; its name is a key of ``BLOCKS``. A test fails if
a page differs from what the published results give.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from benchmarks.commands import CHECKOUT
from benchmarks.report import adding, capacity, comparison, schedules, sentences
from benchmarks.report.figures import Figures

BLOCK = re.compile(r"(<!-- figures:([a-z_]+) -->)(.*?)(<!-- /figures -->)", re.DOTALL)
PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]


def _conditions(*measures: str) -> Callable[[Figures], str]:
    """Return a block that says where the figures were measured, and whether they are final."""

    def conditions(figures: Figures) -> str:
        found = [figures.measured[name] for name in measures if name in figures.measured]
        if not found:
            return "These figures have not been measured yet."
        machine, newest = found[0].machine, max(each.measured_at for each in found)
        python = f"Python {machine['python']}" + (
            "" if machine["python_is_optimized"] else " (built without optimizations)"
        )
        versions = ", ".join(f"{name} {machine[name]}" for name in ("Django", "psycopg", "PostgreSQL"))
        text = (
            f"Measured on {newest[:10]} with {machine['cores']} cores ({machine['processor']}), {machine['system']},"
            f" {python}, {versions}; clients, workers and server share the cores."
        )
        reasons = figures.preliminary(*measures)
        return f"{text} **These figures are preliminary:** {'; '.join(reasons)}." if reasons else text

    return conditions


BLOCKS: dict[str, Callable[[Figures], str]] = {
    "throughput": sentences.throughput,
    "cost": sentences.cost,
    "admin": sentences.admin,
    "counting": sentences.counting,
    "conditions": _conditions("drain", "queues", "latency", "idle", "start", "backlog"),
    "summary": comparison.summary,
    "settings": comparison.settings,
    "grid": comparison.grid,
    "backlog": comparison.backlog,
    "held_snapshot_conditions": _conditions("held_snapshot"),
    "held_snapshot": comparison.held_snapshot,
    "claims_conditions": _conditions("claims"),
    "claims": comparison.claims,
    "schedules_conditions": _conditions("schedules"),
    "schedules_idle": schedules.idle,
    "schedules_firing": schedules.firing,
    "schedules": sentences.schedules,
    "adding_conditions": _conditions("api"),
    "adding_one": adding.one,
    "adding_many": adding.many,
    "real_conditions": _conditions("real_jobs"),
    "real_jobs": comparison.real_jobs,
    "capacity_conditions": _conditions("capacity"),
    "capacity_parts": capacity.parts,
    "capacity_processes": capacity.processes,
    "capacity_predictions": capacity.predictions,
    "capacity_adders": capacity.adders,
    "capacity_databases": capacity.databases,
}


def filled(text: str, figures: Figures) -> str:
    """Return the text of a page with its generated parts. A part that begins a line is a paragraph of its own."""

    def fill(found: re.Match[str]) -> str:
        before, name, old, after = found.groups()
        content = BLOCKS[name](figures)
        return f"{before}\n\n{content}\n\n{after}" if old.startswith("\n") else f"{before}{content}{after}"

    return BLOCK.sub(fill, text)


def write_pages(figures: Figures) -> list[Path]:
    """Write the pages whose generated parts have changed, and return them."""
    changed = []
    for page in PAGES:
        if "_build" in page.parts:
            continue
        text = page.read_text(encoding="utf-8")
        new = filled(text, figures)
        if new != text:
            page.write_text(new, encoding="utf-8")
            changed.append(page)
    return changed
