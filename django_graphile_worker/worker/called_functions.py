"""Which functions and triggers of a database may change the session that calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from time import monotonic
from typing import Any

from django_graphile_worker.sql.session import functions_of_the_site, triggers_that_change_sessions
from django_graphile_worker.worker.statements import custom_settings_in

# A function may be written while the worker runs: what is known of names is forgotten after so many seconds.
MEMORY = 60.0
_MOST_NAMES = 10_000

OpenCursor = Callable[[], AbstractContextManager[Any]]


class CalledFunctions:
    """What is known of the functions in one database, for all threads of this process.

    Without a lock: a thread would hold it while it waits for the database. Two that ask at once learn the same.
    """

    def __init__(self) -> None:
        self._forget_at = 0.0
        # By name: the settings that its text names, None when nobody of the site wrote it.
        self._functions: dict[str, frozenset[str] | None] = {}
        # The same for triggers, as a list of one; empty while nobody has asked.
        self._triggers: list[frozenset[str] | None] = []

    def suspects(self, open_cursor: OpenCursor, names: Iterable[str], *, has_written: bool) -> frozenset[str] | None:
        """The settings that these functions may have changed beside PostgreSQL's own; None: they changed nothing."""
        if monotonic() >= self._forget_at or len(self._functions) > _MOST_NAMES:
            self._forget_at = monotonic() + MEMORY
            self._functions, self._triggers = {}, []
        functions, triggers = self._functions, self._triggers
        unknown = [name for name in names if name not in functions]
        if unknown:
            functions |= _written_here(open_cursor, unknown)
        if has_written and not triggers:
            triggers.append(_triggers(open_cursor))
        found = [functions[name] for name in names] + (triggers[:1] if has_written else [])
        named = [settings for settings in found if settings is not None]
        return frozenset[str]().union(*named) if named else None


def _written_here(open_cursor: OpenCursor, names: list[str]) -> dict[str, frozenset[str] | None]:
    with open_cursor() as cursor:
        found = functions_of_the_site(cursor, names)
    return {name: frozenset(custom_settings_in(found[name], ())) if name in found else None for name in names}


def _triggers(open_cursor: OpenCursor) -> frozenset[str] | None:
    with open_cursor() as cursor:
        texts = triggers_that_change_sessions(cursor)
    return frozenset(custom_settings_in("\n".join(texts), ())) if texts else None
