"""What all verbs have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from django_graphile_worker.management.operator.desk import Desk
from django_graphile_worker.management.operator.values import did_you_mean
from django_graphile_worker.sql import inspection
from django_graphile_worker.sql.jobs import Cursor

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
    # --database and --json; the verb that runs a worker has its own.
    has_usual_options: ClassVar[bool] = True

    def add_arguments(self, parser: CommandParser) -> None:  # noqa: B027 - a verb may take nothing
        """Add what this verb takes beside the usual options."""

    @abstractmethod
    def run(self, desk: Desk, options: Options) -> None:
        """Do it, and tell."""


def narrowing(cursor: Cursor, desk: Desk, options: Options, *, schema: str) -> inspection.Narrowing | None:
    """The chosen task and queue by their ids; None, after a note, when there is no such name."""
    ids: dict[str, int | None] = {}
    for kind in ("task", "queue"):
        name = options.get(kind)
        ids[kind] = None if name is None else inspection.find_name(cursor, kind, name, schema=schema)
        if name is not None and ids[kind] is None:
            hint = did_you_mean(name, inspection.some_names(cursor, kind, schema=schema))
            desk.note(f"No job has the {kind} {name!r}.{hint}")
            return None
    return inspection.Narrowing(ids["task"], ids["queue"])
