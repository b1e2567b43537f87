"""Which functions and triggers of a database may change the session that calls them, told by their text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from time import monotonic
from typing import Any

from django_graphile_worker.sql.session import SiteFunction, functions_of_the_site, triggers_of_the_site
from django_graphile_worker.worker.connections.session_sql import Traits, custom_settings_in, traits_of_body

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
        # By name: nothing for what nobody of the site wrote, several where it is overloaded.
        self._functions: dict[str, list[tuple[SiteFunction, Traits]]] = {}
        # The names of trigger functions; None while nobody has asked.
        self._triggers: frozenset[str] | None = None

    def suspects(self, open_cursor: OpenCursor, names: Iterable[str], *, has_written: bool) -> frozenset[str] | None:
        """The settings that these functions may have changed beside PostgreSQL's own; None: they change nothing."""
        self._forget()
        found: list[tuple[SiteFunction, Traits]] = []
        seen: set[str] = set()
        pending = set(names) | (self._trigger_names(open_cursor) if has_written else set())
        while pending:
            self._ask(open_cursor, pending)
            called = [function for name in pending for function in self._functions.get(name, ())]
            seen |= pending
            # A function calls others, and what it writes calls triggers.
            pending = {name for _, traits in called for name in traits.functions} - seen
            if any(traits.is_write for _, traits in called):
                pending |= self._trigger_names(open_cursor) - seen
            found += called
        if not any(traits.may_change_session for _, traits in found):
            return None
        return frozenset(setting for function, _ in found for setting in custom_settings_in(function.text, ()))

    def _forget(self) -> None:
        if monotonic() >= self._forget_at or len(self._functions) > _MOST_NAMES:
            self._forget_at = monotonic() + MEMORY
            self._functions, self._triggers = {}, None

    def _ask(self, open_cursor: OpenCursor, names: Iterable[str]) -> None:
        unknown = [name for name in names if name not in self._functions]
        if unknown:
            with open_cursor() as cursor:
                self._learn(unknown, functions_of_the_site(cursor, unknown))

    def _trigger_names(self, open_cursor: OpenCursor) -> set[str]:
        triggers = self._triggers
        if triggers is None:
            with open_cursor() as cursor:
                found = triggers_of_the_site(cursor)
            self._learn([function.name for function in found], found)
            triggers = self._triggers = frozenset(function.name for function in found)
        return set(triggers)

    def _learn(self, names: Iterable[str], found: Iterable[SiteFunction]) -> None:
        learnt: dict[str, list[tuple[SiteFunction, Traits]]] = {name: [] for name in names}
        for function in found:
            learnt[function.name].append((function, traits_of_body(function.language, function.text)))
        self._functions |= learnt
