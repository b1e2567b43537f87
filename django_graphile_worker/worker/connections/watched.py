"""One Django connection of one thread, watched around jobs."""

from __future__ import annotations

import select
import weakref
from time import monotonic
from typing import Any, ClassVar, NamedTuple

from django.db import Error
from django.db.utils import InterfaceError, OperationalError

from django_graphile_worker.sql.session import SessionState, session_state
from django_graphile_worker.worker.connections.session_functions import CalledFunctions
from django_graphile_worker.worker.connections.session_sql import HARMLESS, Traits, custom_settings_in, traits_of

# libpq's transaction states.
IDLE, ACTIVE, IN_TRANSACTION, IN_FAILED_TRANSACTION, UNKNOWN = range(5)
_LEFT_OPEN = {
    ACTIVE: "a statement (COPY?) unfinished",
    IN_TRANSACTION: "a transaction open: it was rolled back",
    IN_FAILED_TRANSACTION: "a failed transaction open: it was rolled back",
}
_MOST_USUAL_STATES = 1_000


class Leftover(NamedTuple):
    """What a job left on a connection, which was closed for it."""

    text: str
    # Work that was not committed was rolled back. Otherwise only the session was changed, and nothing is lost.
    is_work_lost: bool


class WatchedConnection:
    """Fresh before a job, clean after it, and closed when it is not."""

    # What a new session looks like, by alias and custom settings asked for: receivers of
    # connection_created may have set things.
    _usual_states: ClassVar[dict[tuple[str, tuple[str, ...]], SessionState]] = {}
    # By alias.
    _functions: ClassVar[dict[str, CalledFunctions]] = {}

    def __init__(self, wrapper: Any) -> None:
        self.wrapper = wrapper
        # How many atomic blocks and savepoints somebody else had open when the job began.
        self._depth: tuple[int, int] | None = None
        self._session_may_be_changed = False
        self._custom_settings: set[str] = set()
        # Functions that the job has called, of which the text of its statements does not tell what they do.
        self._called: set[str] = set()
        self._has_written = False
        self._named_cursors: list[weakref.ref[Any]] = []
        self._socket: tuple[Any, Any] | None = None
        if wrapper.vendor == "postgresql":
            wrapper.execute_wrappers.insert(0, self._notice)

    def opened(self) -> None:
        """A new connection: one from a pool may have died there."""
        wrapper = self.wrapper
        if getattr(wrapper, "pool", None) and self._has_news() and not wrapper.is_usable():
            wrapper.close()
            wrapper.connect()

    def begin(self) -> None:
        wrapper = self.wrapper
        if wrapper.connection is None:
            self._depth = None
            return
        # A transaction that was open before the job is somebody else's: a test's.
        if wrapper.in_atomic_block:
            self._depth = len(wrapper.atomic_blocks), len(wrapper.savepoint_ids)
            return
        self._depth = None
        if wrapper.queries_log and not wrapper.force_debug_cursor:
            wrapper.queries_log.clear()
        if self._has_news():
            wrapper.errors_occurred = True
        self._close_if_unusable_or_obsolete()

    def end(self) -> Leftover | None:
        """Say what the job left behind, and get rid of it."""
        if self._depth is not None:
            return self._end_inside_transaction(*self._depth)
        wrapper = self.wrapper
        if wrapper.connection is None and not wrapper.in_atomic_block:
            self._forget_suspicions()
            return None
        leftover = self._open_transaction()
        if leftover:
            self.discard()
        elif self._is_suspect() and (changes := self._changed_session()):
            leftover = self._leftover(changes)
        self._forget_suspicions()
        self._close_if_unusable_or_obsolete()
        return leftover

    def _leftover(self, text: str, *, is_work_lost: bool = False) -> Leftover:
        return Leftover(f"database {self.wrapper.alias!r}: {text}", is_work_lost)

    def release(self) -> None:
        """The thread runs no more jobs."""
        wrapper = self.wrapper
        if self._notice in wrapper.execute_wrappers:
            wrapper.execute_wrappers.remove(self._notice)
        if not wrapper.in_atomic_block:
            wrapper.close()

    def _close_if_unusable_or_obsolete(self) -> None:
        """Django's method of that name, called only when it would do more than re-arm the health check."""
        wrapper = self.wrapper
        if wrapper.errors_occurred or (wrapper.close_at is not None and monotonic() >= wrapper.close_at):
            wrapper.close_if_unusable_or_obsolete()
        else:
            wrapper.health_check_done = False

    def _end_inside_transaction(self, blocks: int, savepoints: int) -> Leftover | None:
        self._forget_suspicions()
        wrapper = self.wrapper
        if not wrapper.in_atomic_block or len(wrapper.atomic_blocks) <= blocks:
            return None
        while len(wrapper.savepoint_ids) > savepoints:
            savepoint = wrapper.savepoint_ids.pop()
            wrapper.needs_rollback = False
            if savepoint is not None:
                wrapper.savepoint_rollback(savepoint)
        del wrapper.atomic_blocks[blocks:]
        return self._leftover("an atomic block open: it was rolled back", is_work_lost=True)

    def _open_transaction(self) -> Leftover | None:
        wrapper = self.wrapper
        if wrapper.in_atomic_block:
            return self._leftover("an atomic block open: it was rolled back", is_work_lost=True)
        status = self._transaction_status()
        if wrapper.autocommit != wrapper.settings_dict["AUTOCOMMIT"]:
            if status == IDLE:
                return self._leftover("autocommit switched off")
            return self._leftover("autocommit switched off: what was not committed is lost", is_work_lost=True)
        if status == UNKNOWN:
            wrapper.errors_occurred = True
        text = _LEFT_OPEN.get(status)
        return self._leftover(text, is_work_lost=True) if text else None

    def _transaction_status(self) -> int:
        raw = self.wrapper.connection
        pgconn = getattr(raw, "pgconn", None)
        return IDLE if pgconn is None else int(pgconn.transaction_status)

    def discard(self) -> None:
        """Close for real: a pool would hand the session to the next one as it is."""
        wrapper = self.wrapper
        wrapper.in_atomic_block = False
        wrapper.closed_in_transaction = False
        wrapper.needs_rollback = False
        wrapper.savepoint_ids = []
        wrapper.atomic_blocks = []
        try:
            if getattr(wrapper.connection, "pgconn", None) is not None:
                wrapper.connection.close()
            wrapper.close()
        except Exception:
            wrapper.connection = None

    def _notice(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        """Stands between a task and its cursors: remembers, at little cost, what may outlive the job."""
        traits = traits_of(sql)
        if traits is not HARMLESS:
            self._remember(traits, sql, params)
        cursor = context["cursor"].cursor
        if getattr(cursor, "name", None):
            self._named_cursors.append(weakref.ref(cursor))
        return execute(sql, params, many, context)

    def _remember(self, traits: Traits, sql: Any, params: Any) -> None:
        if traits.may_change_session:
            self._session_may_be_changed = True
            self._custom_settings.update(custom_settings_in(sql, params))
        if traits.functions:
            self._called |= traits.functions
        if traits.is_write:
            self._has_written = True

    def _is_suspect(self) -> bool:
        has_open_cursor = any(
            cursor is not None and not cursor.closed for cursor in (ref() for ref in self._named_cursors)
        )
        if not self._called and not self._has_written:
            return self._session_may_be_changed or has_open_cursor
        return self._has_called_a_suspect() or self._session_may_be_changed or has_open_cursor

    def _has_called_a_suspect(self) -> bool:
        functions = self._functions.setdefault(self.wrapper.alias, CalledFunctions())
        try:
            settings = functions.suspects(self.wrapper.cursor, self._called, has_written=self._has_written)
        except Error:
            # The next step looks at the session, and says what is wrong with it.
            return True
        self._custom_settings.update(settings or ())
        return settings is not None

    def _forget_suspicions(self) -> None:
        if self._session_may_be_changed:
            self._session_may_be_changed = False
        if self._custom_settings:
            self._custom_settings = set()
        if self._called:
            self._called = set()
        self._has_written = False
        if self._named_cursors:
            self._named_cursors = []

    def _changed_session(self) -> str | None:
        """Compare the session with a new one, made by the same settings and receivers."""
        names = tuple(sorted(self._custom_settings))
        key = (self.wrapper.alias, names)
        try:
            found = self._state(names)
        except Error as error:
            is_gone = self._transaction_status() == UNKNOWN
            self.discard()
            return None if is_gone else f"a session that could not be examined ({error})"
        if found == self._usual_states.get(key):
            return None
        self.discard()
        try:
            usual = self._state(names)
        except (OperationalError, InterfaceError):
            # Nobody can tell, and nothing is left of it.
            return None
        if len(self._usual_states) > _MOST_USUAL_STATES:
            self._usual_states.clear()
        self._usual_states[key] = usual
        return _difference(found, usual)

    def _state(self, custom_settings: tuple[str, ...]) -> SessionState:
        with self.wrapper.cursor() as cursor:
            return session_state(cursor, custom_settings)

    def _has_news(self) -> bool:
        """Something on an idle connection's socket is nearly always the server's goodbye."""
        raw = self.wrapper.connection
        if getattr(raw, "pgconn", None) is None:
            return False
        if self._socket is None or self._socket[0] is not raw:
            try:
                poller = select.poll()
                poller.register(raw.pgconn.socket, select.POLLIN)
            except Exception:
                return True
            self._socket = (raw, poller)
        return bool(self._socket[1].poll(0))


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
