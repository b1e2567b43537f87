"""What several verbs look up: names of tasks and queues, the states of workers, and the user."""

from __future__ import annotations

import getpass
from typing import Any

from django.core.management.base import CommandError

from django_graphile_worker import conf, registry
from django_graphile_worker.management.operator.arguments import did_you_mean
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options
from django_graphile_worker.registry import label_of
from django_graphile_worker.sql.inspection import known_names
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State
from django_graphile_worker.sql.inspection.lock_holders import Holder, holders
from django_graphile_worker.sql.statements import Cursor


def chosen_criteria(cursor: Cursor, console: Console, options: Options, *, schema: str) -> Criteria | None:
    """Return the criteria of the chosen state, task, label and queue; None, after a warning, for an unknown name."""
    task, queue = options.get("task"), options.get("queue")
    for kind, name in (("task", task), ("queue", queue)):
        if name is not None and not is_known(cursor, console, kind, name, schema=schema):
            return None
    tasks: tuple[str, ...] = () if task is None else (task,)
    if label := options.get("label"):
        chosen = tasks or known_names.known_tasks(cursor, schema=schema)
        tasks = tuple(name for name in chosen if label_of(name) == label)
        if not tasks:
            console.warn(f"No task has the label {label!r}.")
            return None
    return Criteria(
        state=State(options["state"]),
        tasks=tasks,
        queues=() if queue is None else (queue,),
    )


def is_known(cursor: Cursor, console: Console, kind: str, name: str, *, schema: str) -> bool:
    """Return whether the database has a task or a queue of this name; False after a warning."""
    is_task, is_queue, _ = known_names.meaning(cursor, name, schema=schema)
    if is_task if kind == "task" else is_queue:
        return True
    known = known_names.known_tasks if kind == "task" else known_names.some_queues
    console.warn(f"No job has the {kind} {name!r}.{did_you_mean(name, known(cursor, schema=schema))}")
    return False


def require_task(cursor: Cursor, name: str, *, schema: str) -> None:
    """Raise CommandError for the name of a task that neither a job nor a worker nor this project has.

    A health check with a mistyped name would find no job, and always report a healthy queue.
    """
    if name in registry.tasks or known_names.meaning(cursor, name, schema=schema)[0]:
        return
    of_workers = {task for holder in holders(cursor, schema=schema) for task in tasks_of(holder)}
    if name not in of_workers:
        known = {*registry.tasks.identifiers(), *of_workers, *known_names.known_tasks(cursor, schema=schema)}
        raise CommandError(
            f"--task: neither a job nor a worker nor this project has a task {name!r}.{did_you_mean(name, known)}"
        )


def has_fresh_heartbeat(holder: Holder) -> bool:
    return holder.is_alive(conf.current().worker_timeout)


def worker_state(holder: Holder) -> str:
    """Return alive, stopping, silent, or unregistered: workers that do not register have no heartbeat."""
    if not holder.is_registered:
        return "unregistered"
    if not has_fresh_heartbeat(holder):
        return "silent"
    return "stopping" if holder.metadata.get("is_stopping") is True else "alive"


def running_jobs(holder: Holder) -> list[dict[str, Any]]:
    """Return the jobs that the worker reports as running."""
    running = holder.metadata.get("running")
    return [job for job in running if isinstance(job, dict)] if isinstance(running, list) else []


def tasks_of(holder: Holder) -> frozenset[str]:
    """Return the tasks that the worker reports as its own."""
    tasks = holder.metadata.get("tasks")
    return frozenset(filter(lambda task: isinstance(task, str), tasks)) if isinstance(tasks, list) else frozenset()


def name_of_user(options: Options) -> str:
    """Return the name that is recorded."""
    if options["by"] is not None:
        return str(options["by"])
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # A container may run under a number that no user has.
        return ""
