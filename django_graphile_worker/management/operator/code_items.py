"""The recurring tasks of the code, as the verb ``schedules`` lists and shows them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.core.management.color import Style

from django_graphile_worker import conf
from django_graphile_worker.crontab import CronItem, describe, upcoming
from django_graphile_worker.crontab.times import format_time_phrase
from django_graphile_worker.management.operator import formatting
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Cell, Row, Value
from django_graphile_worker.recurring import collect
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql.schedules import from_code
from django_graphile_worker.sql.schedules.from_code import KnownCrontab
from django_graphile_worker.text import shown

ENABLED, PAUSED, UNKNOWN_TASK, FAILING = "enabled", "paused", "unknown task", "failing"
CODE = "code"
NUMBER_OF_TIMES = 5


def state_cell(state: str, style: Style) -> Cell:
    """Return the state of a schedule in its colour."""
    paints = {ENABLED: style.SUCCESS, PAUSED: style.WARNING, UNKNOWN_TASK: style.ERROR, FAILING: style.ERROR}
    return Cell(state, paints.get(state))


class CodeItem(NamedTuple):
    """A recurring task: as the code has it, None for one of other projects, and as the database knows it."""

    name: str
    item: CronItem | None
    known: KnownCrontab | None

    @property
    def task(self) -> str | None:
        return self.item.task if self.item else None

    @property
    def state(self) -> str:
        return PAUSED if self.known is not None and self.known.is_paused else ENABLED

    def coming(self, after: datetime, number: int) -> Sequence[datetime]:
        """Return the next times, in UTC; none for a paused item and one of other projects."""
        return () if self.item is None or self.state == PAUSED else upcoming(self.item, after, number)

    def row(self, now: datetime, style: Style) -> Row:
        return {
            "NAME": self.name,
            "TASK": self.task,
            "WHEN": describe(self.item) if self.item else None,
            "STATE": state_cell(self.state, style),
            "NEXT": formatting.relative(next(iter(self.coming(now, 1)), None), now),
            "LAST": formatting.relative(self.known.last_execution, now) if self.known else None,
            "FROM": CODE if self.item else "other code",
        }

    def facts(self, now: datetime, times: Sequence[datetime], style: Style) -> str:
        pairs: list[tuple[str, Value]] = [("state", self.state)]
        if self.item is None:
            pairs.append(("task", "not in this project's crontab; another worker has or had it"))
        else:
            pairs += [
                ("task", self.item.task),
                ("pattern", self.item.match if isinstance(self.item.match, str) else "a function"),
                ("means", describe(self.item)),
                *([("backfills", format_time_phrase(self.item.period))] if self.item.period else []),
                *([("queue", self.item.queue_name)] if self.item.queue_name else []),
                *([("job key", self.item.job_key)] if self.item.job_key else []),
            ]
        pairs.append(("last", self._last(now)))
        pairs += [("" if place else "next", formatting.both(moment, now)) for place, moment in enumerate(times)]
        return f"{style.MIGRATE_HEADING(shown(self.name))}\n{formatting.facts(pairs, indent='  ')}"

    def _last(self, now: datetime) -> str:
        if self.known is None:
            return "unknown: no worker has registered the item yet"
        if self.known.last_execution is not None:
            return formatting.both(self.known.last_execution, now)
        if self.known.is_paused:
            return "never, or no longer known"
        return f"never, known since {formatting.both(self.known.known_since, now)}"

    def as_dict(self, after: datetime, number: int = NUMBER_OF_TIMES) -> dict[str, Any]:
        if self.item is None:
            assert self.known is not None
            return dataclasses.asdict(self.known)
        return {
            "identifier": self.name,
            "task": self.item.task,
            "pattern": self.item.match if isinstance(self.item.match, str) else None,
            "means": describe(self.item),
            "time_zone": self.item.zone.key if self.item.zone else "UTC",
            "payload": self.item.payload,
            "backfill_seconds": self.item.period.total_seconds(),
            "known_since": self.known.known_since if self.known else None,
            "last_execution": self.known.last_execution if self.known else None,
            "is_paused": self.state == PAUSED,
            "next": [moment.astimezone(UTC) for moment in self.coming(after, number)],
        }


def code_items(console: Console, **changes: Any) -> list[CodeItem]:
    """Return the recurring tasks of the code, or those with other settings, and then those of other projects."""
    place = place_of(**console.place)
    items = collect(place.settings.replace(**changes), with_tasks=place.installation == conf.DEFAULT)
    with console.reading() as (cursor, schema, _):
        known = from_code.known_items(cursor, schema=schema)
    own = [CodeItem(item.name, item, known.get(item.name)) for item in items]
    names = {each.name for each in own}
    return own + [CodeItem(name, None, each) for name, each in sorted(known.items()) if name not in names]
