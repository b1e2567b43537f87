"""What all verbs have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from django_graphile_worker.management.operator.arguments import did_you_mean
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.sql.cursor import Cursor
from django_graphile_worker.sql.inspection import names
from django_graphile_worker.sql.inspection.criteria import Criteria, State

Options = dict[str, Any]


class Verb(ABC):
    """One thing that an operator can do."""

    name: ClassVar[str]
    aliases: ClassVar[Sequence[str]] = ()
    # One line for the overview; the description says the rest.
    summary: ClassVar[str]
    description: ClassVar[str] = ""
    # What comes after the verb's name, line by line.
    examples: ClassVar[Sequence[str]] = ("",)
    # --database, --installation and --json; the verb that runs a worker has its own.
    has_usual_options: ClassVar[bool] = True

    def add_arguments(self, parser: CommandParser) -> None:  # noqa: B027 - a verb may take nothing
        """Add what this verb takes beside the usual options."""

    @abstractmethod
    def run(self, desk: Console, options: Options) -> None:
        """Do it, and tell."""


def narrowed(cursor: Cursor, desk: Console, options: Options, *, schema: str) -> Criteria | None:
    """The chosen state, task and queue; None, after a note, when there is no such name."""
    task, queue = options.get("task"), options.get("queue")
    for kind, name in (("task", task), ("queue", queue)):
        if name is not None and not is_known(cursor, desk, kind, name, schema=schema):
            return None
    return Criteria(
        state=State(options["state"]),
        tasks=() if task is None else (task,),
        queues=() if queue is None else (queue,),
    )


def is_known(cursor: Cursor, desk: Console, kind: str, name: str, *, schema: str) -> bool:
    """Whether the database has a task or a queue of this name; False after a note."""
    is_task, is_queue, _ = names.meaning(cursor, name, schema=schema)
    if is_task if kind == "task" else is_queue:
        return True
    known = names.known_tasks if kind == "task" else names.some_queues
    desk.warn(f"No job has the {kind} {name!r}.{did_you_mean(name, known(cursor, schema=schema))}")
    return False
