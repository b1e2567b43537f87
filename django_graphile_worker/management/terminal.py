"""What a worker shows a person at a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from copy import copy
from fnmatch import fnmatchcase
from typing import Any

from django.db import connections
from django.utils.termcolors import make_style

from django_graphile_worker import __version__, conf
from django_graphile_worker.escaping import escaped
from django_graphile_worker.management.plan import Plan
from django_graphile_worker.registry import tasks as registered_tasks
from django_graphile_worker.worker.runner import Runner

ROOT_LOGGER = "django_graphile_worker"
TASKS_SHOWN = 12
LEVELS = {0: logging.ERROR, 1: logging.INFO, 2: logging.INFO, 3: logging.DEBUG}
COLORS = {
    logging.DEBUG: make_style(fg="blue"),
    logging.WARNING: make_style(fg="yellow"),
    logging.ERROR: make_style(fg="red"),
    logging.CRITICAL: make_style(fg="red", opts=("bold",)),
}
# Of a line about a job only the word is painted that says how it ended.
OUTCOMES = {
    "succeeded": make_style(fg="green"),
    "failed": make_style(fg="yellow", opts=("bold",)),
    "permanently failed": make_style(fg="red", opts=("bold",)),
    "interrupted": make_style(fg="yellow"),
    "claim lost": make_style(fg="yellow"),
}


def banner(runners: Sequence[Runner], plan: Plan) -> str:
    """One block that says what was started, and how it lives."""
    lines = [f"django-graphile-worker {__version__}"]
    for runner in runners:
        lines += [f"  {name:<12} {value}" for name, value in _facts(runner, plan)]
    lines.append("Stops with Ctrl-C: once to finish what runs, twice to stop at once.")
    return "\n".join(lines)


def _facts(runner: Runner, plan: Plan) -> list[tuple[str, str]]:
    settings = runner.settings
    processes = f" in each of {settings.processes} processes" if settings.processes > 1 else ""
    installation = [("installation", runner.place.installation)] if conf.are_installations_named() else []
    return [
        *installation,
        ("database", _address(runner.place.using)),
        ("schema", settings.schema),
        ("tasks", _tasks(runner)),
        ("concurrency", f"{settings.concurrency}{processes}"),
        ("recurring", _listed([item.name for item in runner.parts.cron_items]) or "none"),
        ("woken by", _woken_by(runner, plan)),
    ]


def _tasks(runner: Runner) -> str:
    there = sorted(registered_tasks.identifiers())
    if not there:
        return "none: write functions with @task in an app's tasks.py"
    empty = [glob for glob in runner.settings.tasks if not any(fnmatchcase(name, glob) for name in there)]
    unmatched = f"nothing matches {', '.join(map(repr, empty))}" if empty else ""
    if runner.parts.tasks:
        return _listed(sorted(runner.parts.tasks)) + (f"; {unmatched}" if unmatched else "")
    excluded = ", ".join(map(repr, runner.settings.exclude_tasks))
    return f"none: {unmatched or f'all are excluded by {excluded}'}. There are: {_listed(there)}"


def _woken_by(runner: Runner, plan: Plan) -> str:
    if plan.once:
        return "nothing: runs what is runnable, then exits"
    poll = f"a look every {runner.settings.poll_interval:g} s"
    return f"LISTEN, and {poll}" if runner.settings.listen else poll


def _address(alias: str) -> str:
    settings: dict[str, Any] = connections.settings[alias]
    host = settings.get("HOST") or "local socket"
    port = f":{settings['PORT']}" if settings.get("PORT") else ""
    return f"{alias} ({settings.get('NAME')} at {host}{port})"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - TASKS_SHOWN} more" if len(names) > TASKS_SHOWN else ""
    return ", ".join(names[:TASKS_SHOWN]) + more


class Formatter(logging.Formatter):
    """A time, a message; colour says how bad it is."""

    def __init__(self, *, is_colored: bool, is_detailed: bool = True) -> None:
        super().__init__("%(asctime)s %(message)s", datefmt="%H:%M:%S")
        self._is_colored = is_colored
        # Tracebacks of what will be tried again, too; of what will not be, always.
        self._is_detailed = is_detailed

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """The traceback without the worker's own frames; empty when no other is left."""
        # Here, as a start has no exception to show.
        from django_graphile_worker.worker.execution.error_text import trace

        # An error's text may hold what a terminal obeys.
        return "\n".join(map(escaped, trace(ei[1]).split("\n")))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        text = super().formatMessage(record)
        if not self._is_colored:
            return text
        outcome = getattr(record, "outcome", None)
        paint = OUTCOMES.get(str(outcome))
        if paint and f" {outcome} " in text:
            return text.replace(f" {outcome} ", f" {paint(str(outcome))} ", 1)
        paint = COLORS.get(record.levelno)
        return paint(text) if paint else text

    def format(self, record: logging.LogRecord) -> str:
        # A copy, as logging keeps the text of a traceback on the record, where other handlers would find this one.
        record = copy(record)
        record.exc_text = None
        if record.levelno < logging.ERROR and not self._is_detailed:
            record.exc_info = None
        return super().format(record)


def set_up_logging(plan: Plan) -> None:
    """Show lines on a terminal, unless the project's own LOGGING takes care of them."""
    logger = logging.getLogger(ROOT_LOGGER)
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter(is_colored=plan.is_colored, is_detailed=plan.verbosity > 1))
    logger.addHandler(handler)
    logger.setLevel(LEVELS.get(plan.verbosity, logging.INFO))
