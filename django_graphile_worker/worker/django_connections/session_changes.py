"""What a job changed in the session of its connection.

The text of each statement shows whether it may change the session. Only if it may, the session is compared with a new
session after the job. So a usual job costs no statement.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, ClassVar

from django.db import Error
from django.db.utils import InterfaceError, OperationalError

from django_graphile_worker.sql.session import SessionState, session_state
from django_graphile_worker.worker.django_connections.session_changing_functions import CalledFunctions
from django_graphile_worker.worker.django_connections.session_changing_sql import (
    HARMLESS,
    Traits,
    custom_settings_in,
    traits_of,
)
from django_graphile_worker.worker.django_connections.transaction_status import UNKNOWN, transaction_status

_MAX_USUAL_STATES = 1_000


class SessionChanges:
    """The changes that one job may have made to the session of one connection."""

    # The state of a new session, by alias and by the custom settings that it includes. It may not be empty, because
    # receivers of connection_created may change the session.
    _usual_states: ClassVar[dict[tuple[str, tuple[str, ...]], SessionState]] = {}
    # By alias.
    _functions: ClassVar[dict[str, CalledFunctions]] = {}

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper
        self._may_be_changed = False
        self._custom_settings: set[str] = set()
        # Functions that the job called. The text of its statements does not show what they do.
        self._called: set[str] = set()
        self._has_written = False
        self._named_cursors: list[weakref.ref[Any]] = []

    def note_statement(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        """Execute a statement of the job, and note at little cost what may outlive the job.

        Django calls it as an execute wrapper.
        """
        traits = traits_of(sql)
        if traits is not HARMLESS:
            self._note(traits, sql, params)
        cursor = context["cursor"].cursor
        if getattr(cursor, "name", None):
            self._named_cursors.append(weakref.ref(cursor))
        return execute(sql, params, many, context)

    def _note(self, traits: Traits, sql: Any, params: Any) -> None:
        if traits.may_change_session:
            self._may_be_changed = True
            self._custom_settings.update(custom_settings_in(sql, params))
        if traits.functions:
            self._called |= traits.functions
        if traits.is_write:
            self._has_written = True

    def is_suspect(self) -> bool:
        """Return True if the job may have changed the session."""
        if self._called or self._has_written:
            may_be_changed = self._calls_may_change_session() or self._may_be_changed
        else:
            may_be_changed = self._may_be_changed
        return may_be_changed or (bool(self._named_cursors) and self._has_open_cursor())

    def _has_open_cursor(self) -> bool:
        return any(cursor is not None and not cursor.closed for cursor in (ref() for ref in self._named_cursors))

    def _calls_may_change_session(self) -> bool:
        functions = self._functions.setdefault(self._wrapper.alias, CalledFunctions())
        try:
            settings = functions.suspects(self._wrapper.cursor, self._called, has_written=self._has_written)
        except Error:
            # find() reads the session next, and reports the error.
            return True
        self._custom_settings.update(settings or ())
        return settings is not None

    def find(self, discard: Callable[[], None]) -> str | None:
        """Describe how the session differs from a new session with the same settings and receivers.

        Calls ``discard``, which closes the connection, unless the session is known to be like a new session.
        """
        names = tuple(sorted(self._custom_settings))
        try:
            found = self._state(names)
        except Error as error:
            is_gone = transaction_status(self._wrapper) == UNKNOWN
            discard()
            return None if is_gone else f"a session that could not be examined ({error})"
        if found == self._usual_states.get((self._wrapper.alias, names)):
            return None
        discard()
        usual = self._learn_usual_state(names)
        return None if usual is None else _difference(found, usual)

    def _learn_usual_state(self, names: tuple[str, ...]) -> SessionState | None:
        """Read the state of a new session; return None if the server cannot be reached."""
        try:
            usual = self._state(names)
        except (OperationalError, InterfaceError):
            # The two sessions cannot be compared, and the changed session is closed.
            return None
        if len(self._usual_states) > _MAX_USUAL_STATES:
            self._usual_states.clear()
        self._usual_states[self._wrapper.alias, names] = usual
        return usual

    def _state(self, custom_settings: tuple[str, ...]) -> SessionState:
        with self._wrapper.cursor() as cursor:
            return session_state(cursor, custom_settings)

    def forget(self) -> None:
        """Forget the statements of the last job."""
        if self._may_be_changed:
            self._may_be_changed = False
        if self._custom_settings:
            self._custom_settings = set()
        if self._called:
            self._called = set()
        self._has_written = False
        if self._named_cursors:
            self._named_cursors = []


def _difference(found: SessionState, usual: SessionState) -> str | None:
    if found == usual:
        return None
    changed = sorted(
        f"{kind} {name}" + (f" = {value}" if value is not None else "") for kind, name, value in found - usual
    )
    gone = sorted(
        f"{kind} {name} reset"
        for kind, name, _ in usual - found
        if not any((kind, name) == (other_kind, other_name) for other_kind, other_name, _ in found)
    )
    return f"its session changed: {', '.join([*changed, *gone])[:1000]}"
