"""Checks names of tasks and queues on the command line, and suggests others for mistyped names."""

from __future__ import annotations

from django.core.management.base import CommandError

from django_graphile_worker import registry
from django_graphile_worker.management.operator.arguments import did_you_mean
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options
from django_graphile_worker.management.operator.worker_states import tasks_of
from django_graphile_worker.registry import label_of
from django_graphile_worker.sql.inspection import names
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria, State
from django_graphile_worker.sql.inspection.lock_holders import holders
from django_graphile_worker.sql.statements import Cursor


def chosen_criteria(cursor: Cursor, console: Console, options: Options, *, schema: str) -> Criteria | None:
    """Return the criteria of the chosen state, task, label and queue; None, after a warning, for an unknown name."""
    task, queue = options.get("task"), options.get("queue")
    for kind, name in (("task", task), ("queue", queue)):
        if name is not None and not is_known(cursor, console, kind, name, schema=schema):
            return None
    tasks: tuple[str, ...] = () if task is None else (task,)
    if label := options.get("label"):
        chosen = tasks or names.known_tasks(cursor, schema=schema)
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
    is_task, is_queue, _ = names.meaning(cursor, name, schema=schema)
    if is_task if kind == "task" else is_queue:
        return True
    known = names.known_tasks if kind == "task" else names.some_queues
    console.warn(f"No job has the {kind} {name!r}.{did_you_mean(name, known(cursor, schema=schema))}")
    return False


def require_task(cursor: Cursor, name: str, *, schema: str) -> None:
    """Raise CommandError for the name of a task that neither a job nor a worker nor this project has.

    A health check with a mistyped name would find no job, and always report a healthy queue.
    """
    if name in registry.tasks or names.meaning(cursor, name, schema=schema)[0]:
        return
    of_workers = {task for holder in holders(cursor, schema=schema) for task in tasks_of(holder)}
    if name not in of_workers:
        known = {*registry.tasks.identifiers(), *of_workers, *names.known_tasks(cursor, schema=schema)}
        raise CommandError(
            f"--task: expected a task that a job, a worker or this project has, got {name!r}."
            f"{did_you_mean(name, known)}"
        )
