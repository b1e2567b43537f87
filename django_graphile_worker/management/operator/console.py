"""The console of a verb: the streams that it writes results to, and the database that it reads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.core.management.base import CommandError, OutputWrapper
from django.core.management.color import Style
from django.db import OperationalError, transaction

from django_graphile_worker import conf
from django_graphile_worker.api.connection import open_queue
from django_graphile_worker.management.operator import formatting
from django_graphile_worker.management.operator.formatting import Columns, Values
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql.errors import sqlstate
from django_graphile_worker.sql.inspection import statement_limits
from django_graphile_worker.sql.schedules import from_code
from django_graphile_worker.sql.statements import Cursor
from django_graphile_worker.text import escaped

QUERY_CANCELED = "57014"


class Reading(NamedTuple):
    """A transaction that reads the queue; ``now`` is its time by the database's clock."""

    cursor: Cursor
    schema: str
    now: datetime


@dataclass(frozen=True, kw_only=True)
class Console:
    """The streams, the database and the options of one call of a verb."""

    out: OutputWrapper
    err: OutputWrapper
    style: Style
    using: str | None
    installation: str | None = None
    is_json: bool = False

    @property
    def place(self) -> dict[str, Any]:
        """The database and the installation, as the functions of the API take them."""
        return {"using": self.using, "installation": self.installation}

    @property
    def settings(self) -> conf.Settings:
        """The settings of the installation."""
        return place_of(self.using, self.installation).settings

    def say(self, text: str) -> None:
        self.out.write(text)

    def done(self, text: str) -> None:
        """Write what was done, in the colour of success."""
        self.out.write(self.style.SUCCESS(escaped(text)))

    def note(self, text: str) -> None:
        """Write a text that is not part of the result to standard error: pipes and ``--json`` get only the result."""
        self.err.write(escaped(text), style_func=str)

    def warn(self, text: str) -> None:
        """Write a note about a possible error, in the colour of warnings."""
        self.err.write(self.style.WARNING(escaped(text)), style_func=str)

    def dump(self, value: Any) -> None:
        self.out.write(json.dumps(value, indent=2, default=_as_json))

    def table(self, rows: Sequence[Values], columns: Columns, now: datetime) -> None:
        # A file or a pipe has no limit.
        width = shutil.get_terminal_size().columns if self.out.isatty() else None
        self.say(formatting.table(rows, columns, now, self.style, width=width))

    def facts(self, values: Values, now: datetime) -> None:
        self.say(formatting.facts(values, now, self.style))

    def listing(
        self,
        found: Iterable[Values],
        columns: Columns,
        now: datetime,
        *,
        nothing: str,
        limit: int | None = None,
        noun: str = "",
        has_more: bool = False,
    ) -> None:
        """Write what was found as JSON or as a table; note if there is nothing, or more than the limit."""
        rows = list(found)
        if self.is_json:
            self.dump(rows[:limit])
        elif rows:
            self.table(rows[:limit], columns, now)
        else:
            self.note(nothing)
        if has_more or (limit is not None and len(rows) > limit):
            self.note(f"There are more {noun}; these are the first {limit}. Use --limit to list more.")

    def now(self) -> datetime:
        """Return the time of the database. This works for roles that may only add jobs, too."""
        with open_queue(self.using, self.installation) as queue:
            return from_code.database_now(queue.cursor)

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """Open a transaction for reading, with ADMIN_STATEMENT_TIMEOUT; raise if row-level security hides rows."""
        seconds = conf.current().admin_statement_timeout
        with open_queue(self.using, self.installation) as queue:
            queue.refuse_hidden_tables()
            try:
                with transaction.atomic(using=queue.alias):
                    before = statement_limits.limit_statements(queue.cursor, timeout=seconds)
                    yield Reading(queue.cursor, queue.schema, from_code.database_now(queue.cursor))
                    statement_limits.change_settings(queue.cursor, before)
            except OperationalError as error:
                if sqlstate(error) != QUERY_CANCELED:
                    raise
                raise CommandError(
                    f"The database did not answer within {seconds:g} seconds. Select fewer jobs (--state, --task, "
                    '--limit), or allow more time with GRAPHILE_WORKER["ADMIN_STATEMENT_TIMEOUT"].'
                ) from error


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return formatting.iso(value)
    if isinstance(value, frozenset | set):
        return sorted(value)
    return str(value)
