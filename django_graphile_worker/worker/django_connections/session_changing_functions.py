"""Which functions and triggers of a database may change the session that calls them, found in their text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from time import monotonic
from typing import Any

from django_graphile_worker.sql.session import SiteFunction, functions_of_the_site, triggers_of_the_site
from django_graphile_worker.worker.django_connections.session_changing_sql import (
    Traits,
    custom_settings_in,
    traits_of_body,
)

# Seconds after which all functions are read again: functions may be created while the worker runs.
MAX_AGE = 60.0
_MAX_NAMES = 10_000

OpenCursor = Callable[[], AbstractContextManager[Any]]


class CalledFunctions:
    """A cache of the functions of one database, for all threads of this process.

    There is no lock: a thread would hold it while it waits for the database. Without it, two threads only read the same
    rows twice.
    """

    def __init__(self) -> None:
        self._expires_at = 0.0
        # By name: an empty list for a name that is not a function of the site, several entries if it is overloaded.
        self._functions: dict[str, list[tuple[SiteFunction, Traits]]] = {}
        # The names of trigger functions; None until they are first needed.
        self._triggers: frozenset[str] | None = None
        # What ``suspects()`` has found, by its arguments. Most jobs of a site call the same functions.
        self._answers: dict[tuple[frozenset[str], bool], frozenset[str] | None] = {}

    def suspects(self, open_cursor: OpenCursor, names: Iterable[str], *, has_written: bool) -> frozenset[str] | None:
        """Return the custom settings that these functions may have changed; None if they change nothing.

        An empty set means that they may have changed settings of PostgreSQL.
        """
        self._expire()
        # Kept here: another thread may replace it meanwhile, together with the functions that the answer is about.
        answers, question = self._answers, (frozenset(names), has_written)
        if question not in answers:
            answers[question] = self._find_suspects(open_cursor, names, has_written=has_written)
        return answers[question]

    def _find_suspects(
        self, open_cursor: OpenCursor, names: Iterable[str], *, has_written: bool
    ) -> frozenset[str] | None:
        found: list[tuple[SiteFunction, Traits]] = []
        seen: set[str] = set()
        pending = set(names) | (self._trigger_names(open_cursor) if has_written else set())
        while pending:
            self._load(open_cursor, pending)
            called = [function for name in pending for function in self._functions.get(name, ())]
            seen |= pending
            # A function calls other functions, and a write in it calls triggers.
            pending = {name for _, traits in called for name in traits.functions} - seen
            if any(traits.is_write for _, traits in called):
                pending |= self._trigger_names(open_cursor) - seen
            found += called
        if not any(traits.may_change_session for _, traits in found):
            return None
        return frozenset(setting for function, _ in found for setting in custom_settings_in(function.text, ()))

    def _expire(self) -> None:
        if monotonic() >= self._expires_at or max(len(self._functions), len(self._answers)) > _MAX_NAMES:
            self._expires_at = monotonic() + MAX_AGE
            self._functions, self._triggers, self._answers = {}, None, {}

    def _load(self, open_cursor: OpenCursor, names: Iterable[str]) -> None:
        unknown = [name for name in names if name not in self._functions]
        if unknown:
            with open_cursor() as cursor:
                self._add(unknown, functions_of_the_site(cursor, unknown))

    def _trigger_names(self, open_cursor: OpenCursor) -> set[str]:
        triggers = self._triggers
        if triggers is None:
            with open_cursor() as cursor:
                found = triggers_of_the_site(cursor)
            self._add([function.name for function in found], found)
            triggers = self._triggers = frozenset(function.name for function in found)
        return set(triggers)

    def _add(self, names: Iterable[str], found: Iterable[SiteFunction]) -> None:
        added: dict[str, list[tuple[SiteFunction, Traits]]] = {name: [] for name in names}
        for function in found:
            added[function.name].append((function, traits_of_body(function.language, function.text)))
        # In place: another thread may have replaced the functions, which an assignment would bring back.
        self._functions.update(added)
