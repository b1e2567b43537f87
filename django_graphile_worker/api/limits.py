"""The numbers of limits: which count at this moment, and how an operator changes them without a deploy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from django_graphile_worker.api.connection import QueueConnection, open_place
from django_graphile_worker.exceptions import InvalidJobError
from django_graphile_worker.limits import LimitDefinition, LimitNumbers, definitions
from django_graphile_worker.registry import tasks
from django_graphile_worker.routing import Place, place_of
from django_graphile_worker.sql.limits import (
    LimitOverride,
    delete_override,
    read_overrides,
    reopen_limit,
    store_override,
)
from django_graphile_worker.sql.statements import Cursor
from django_graphile_worker.text import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitStatus:
    """A limit, the numbers that count, and where they come from."""

    name: str
    numbers: LimitNumbers
    # The numbers of the code and of the settings; None for a limit that no task of this project has.
    defined: LimitNumbers | None
    is_fair: bool
    tasks: tuple[str, ...]
    # By whom and when the numbers were stored in the database, if they were.
    changed_by: str | None = None
    changed_at: datetime | None = None

    @property
    def is_overridden(self) -> bool:
        return self.changed_by is not None


def limit_statuses(cursor: Cursor, place: Place) -> list[LimitStatus]:
    """Return the limits of this project, and those that operators have given numbers, sorted by name.

    Fair turns, which have no numbers, are not among them.
    """
    stored = read_overrides(cursor, schema=place.settings.schema)
    defined = {each.name: each for each in definitions(tasks, place.settings.limits) if each.numbers.are_limiting}
    return [_status(name, defined.get(name), stored.get(name)) for name in sorted({*defined, *stored})]


def _status(name: str, defined: LimitDefinition | None, stored: LimitOverride | None) -> LimitStatus:
    own = LimitNumbers() if defined is None else defined.numbers
    return LimitStatus(
        name=name,
        numbers=own if stored is None else stored.numbers,
        defined=None if defined is None else defined.numbers,
        is_fair=defined is not None and defined.is_fair,
        tasks=() if defined is None else defined.tasks,
        changed_by=None if stored is None else stored.changed_by,
        changed_at=None if stored is None else stored.changed_at,
    )


def override_limit(
    name: str, numbers: LimitNumbers, *, changed_by: str, using: str | None = None, installation: str | None = None
) -> None:
    """Store the numbers of a limit: from the commit on, they count for all workers, in place of code and settings."""
    place = place_of(using, installation)
    with open_place(place) as queue, transaction.atomic(using=queue.alias):
        _refuse_unknown(name, limit_statuses(queue.cursor, place))
        store_override(queue.cursor, name, numbers, changed_by=changed_by, schema=queue.schema)
        _reopen(queue, name)


def reset_limit(name: str, *, changed_by: str = "", using: str | None = None, installation: str | None = None) -> bool:
    """Delete the stored numbers of a limit, so that those of the code count again; return False if there were none."""
    place = place_of(using, installation)
    with open_place(place) as queue, transaction.atomic(using=queue.alias):
        _refuse_unknown(name, limit_statuses(queue.cursor, place))
        was_stored = delete_override(queue.cursor, name, changed_by=changed_by, schema=queue.schema)
        _reopen(queue, name)
    return was_stored


def _reopen(queue: QueueConnection, name: str) -> None:
    reopen_limit(queue.cursor, name, notify=queue.notify, schema=queue.schema)


def _refuse_unknown(name: str, known: Iterable[LimitStatus]) -> None:
    names = [each.name for each in known]
    if name not in names:
        way_out = did_you_mean(name, names) or (
            f"Known limits: {', '.join(names)}." if names else "No task of this project has a limit."
        )
        raise InvalidJobError(f"limit: there is no limit {name!r}. {way_out}")
