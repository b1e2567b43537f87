"""The text that ``runworker`` shows before the worker starts."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from django.db import connections

from django_graphile_worker import __version__, conf
from django_graphile_worker.registry import tasks as registered_tasks
from django_graphile_worker.worker.runner import Runner

TASKS_SHOWN = 12


def banner(runners: Sequence[Runner], *, once: bool) -> str:
    """Return a block of text about the workers that start, and how to stop them."""
    lines = [f"django-graphile-worker {__version__}"]
    for runner in runners:
        lines += [f"  {name:<12} {value}" for name, value in _facts(runner, once=once)]
    lines.append("Stops with Ctrl-C: once to finish what runs, twice to stop at once.")
    return "\n".join(lines)


def _facts(runner: Runner, *, once: bool) -> list[tuple[str, str]]:
    settings = runner.settings
    processes = f" in each of {settings.processes} processes" if settings.processes > 1 else ""
    installation = [("installation", runner.place.installation)] if conf.are_installations_named() else []
    return [
        *installation,
        ("database", _address(runner.place.using)),
        ("schema", settings.schema),
        ("tasks", _tasks(runner)),
        ("concurrency", f"{settings.concurrency}{processes}"),
        ("recurring", _recurring(runner)),
        ("woken by", _woken_by(runner, once=once)),
    ]


def _recurring(runner: Runner) -> str:
    if not runner.worker.fires:
        return "left to other workers"
    return _listed([*(item.name for item in runner.worker.cron_items), *runner.worker.every]) or "none in code"


def _tasks(runner: Runner) -> str:
    if runner.worker.directory.finds_tasks:
        known = _listed(sorted(runner.worker.directory.tasks))
        return f"{known or 'none yet'}, and Django tasks, which are imported by the names of their jobs"
    there = sorted(registered_tasks.identifiers())
    if not there:
        return "none: write functions with @task in an app's tasks.py"
    empty = [glob for glob in runner.settings.tasks if not any(fnmatchcase(name, glob) for name in there)]
    unmatched = f"nothing matches {', '.join(map(repr, empty))}" if empty else ""
    if runner.worker.directory.tasks:
        return _listed(sorted(runner.worker.directory.tasks)) + (f"; {unmatched}" if unmatched else "")
    excluded = ", ".join(map(repr, runner.settings.exclude_tasks))
    return f"none: {unmatched or f'all are excluded by {excluded}'}. There are: {_listed(there)}"


def _woken_by(runner: Runner, *, once: bool) -> str:
    if once:
        return "nothing: runs what is runnable, then exits"
    poll = f"a poll every {runner.settings.poll_interval:g} s"
    return f"LISTEN, and {poll}" if runner.settings.listen else poll


def _address(alias: str) -> str:
    settings: dict[str, Any] = connections.settings[alias]
    host = settings.get("HOST") or "local socket"
    port = f":{settings['PORT']}" if settings.get("PORT") else ""
    return f"{alias} ({settings.get('NAME')} at {host}{port})"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - TASKS_SHOWN} more" if len(names) > TASKS_SHOWN else ""
    return ", ".join(names[:TASKS_SHOWN]) + more
