"""Pauses and resumes queues, tasks and flags."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.utils import timezone

from django_graphile_worker import registry, signals, simulation
from django_graphile_worker.api.connection import QueueConnection, async_variant, aware, open_place
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError, UnknownQueueError, UnknownTaskError
from django_graphile_worker.job_options import valid_flag, valid_identifier, valid_queue_name, valid_time
from django_graphile_worker.jobs import TaskLike
from django_graphile_worker.routing import Place, place_of
from django_graphile_worker.sql import control as sql_pauses
from django_graphile_worker.sql.control import Pause, PauseKind
from django_graphile_worker.sql.inspection import known_names
from django_graphile_worker.text import did_you_mean, storable_text


def pause(
    *,
    queue: str | None = None,
    task: str | TaskLike | None = None,
    flag: str | None = None,
    until: datetime | timedelta | None = None,
    reason: str = "",
    by: str = "",
    create: bool = False,
    using: str | None = None,
    installation: str | None = None,
) -> Pause:
    """Pause a queue, a task or the jobs with a flag, and return the pause; an existing pause is changed.

    Its jobs wait until ``resume()``, or until the time ``until``. Jobs that run finish. A queue or task that neither
    the database nor this project has is refused, unless ``create`` is True.
    """
    kind, name = _valid_target(queue, task, flag)
    ends_at = _valid_until(until)
    texts = {"reason": _valid_text("reason", reason), "by": _valid_text("by", by)}
    place = place_of(using, installation)
    with open_place(place) as connection:
        if not create:
            _refuse_unknown(connection, kind, name)
        found, _ = sql_pauses.pause(
            connection.cursor, kind, name, schema=connection.schema, until=ends_at, now=_now(), **texts
        )
    simulation.has_pauses = True
    _send(signals.work_paused, found, place, by=found.by)
    return found


def resume(
    *,
    queue: str | None = None,
    task: str | TaskLike | None = None,
    flag: str | None = None,
    by: str = "",
    using: str | None = None,
    installation: str | None = None,
) -> Pause | None:
    """End a pause and return it; return None if there is none. The jobs that waited can start at once."""
    kind, name = _valid_target(queue, task, flag)
    resumed_by = _valid_text("by", by)
    place = place_of(using, installation)
    with open_place(place) as connection:
        found = sql_pauses.resume(connection.cursor, kind, name, schema=connection.schema, by=resumed_by)
        if found is None:
            connection.refuse_hidden_tables()
            return None
    _send(signals.work_resumed, found, place, by=resumed_by)
    return found


def pauses(*, using: str | None = None, installation: str | None = None) -> list[Pause]:
    """Return everything that is paused now, sorted by kind and name."""
    with open_place(place_of(using, installation)) as connection:
        return sql_pauses.active_pauses(connection.cursor, schema=connection.schema, now=_now())


def _valid_target(queue: object, task: object, flag: object) -> tuple[PauseKind, str]:
    given = [
        (kind, value)
        for kind, value in ((PauseKind.QUEUE, queue), (PauseKind.TASK, task), (PauseKind.FLAG, flag))
        if value is not None
    ]
    if len(given) != 1:
        got = " and ".join(f"{kind}={value!r}" for kind, value in given) or "none of them"
        raise InvalidTypeError(f"Expected one of queue=, task= and flag=, got {got}.")
    kind, value = given[0]
    if kind is PauseKind.QUEUE:
        return kind, valid_queue_name(value) or ""
    if kind is PauseKind.FLAG:
        return kind, valid_flag(value)
    return kind, valid_identifier(getattr(value, "identifier", value))


def _valid_until(until: object) -> datetime | timedelta | None:
    if until is None:
        return None
    ends_at = simulation.moved(aware(valid_time("until", until), name="until"))
    if _is_past(ends_at):
        raise InvalidJobError(f"until: expected a time in the future, or a duration above zero, got {until!r}.")
    return ends_at


def _is_past(moment: datetime | timedelta | None) -> bool:
    if not isinstance(moment, datetime):
        return moment is not None and moment <= timedelta(0)
    known = timezone.make_aware(moment, timezone.get_default_timezone()) if timezone.is_naive(moment) else moment
    return known <= (_now() or datetime.now(UTC))


def _now() -> datetime | None:
    """Return the time of the clock of a test; None for the time of the database."""
    return None if simulation.now is None else simulation.now()


def _valid_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidTypeError(f"{name}: expected a string, got {value!r}.")
    return storable_text(value)


def _refuse_unknown(connection: QueueConnection, kind: PauseKind, name: str) -> None:
    if kind is PauseKind.FLAG or (kind is PauseKind.TASK and name in registry.tasks):
        return
    cursor, schema = connection.cursor, connection.schema
    if sql_pauses.is_known_name(cursor, kind, name, schema=schema):
        return
    connection.refuse_hidden_tables()
    if kind is PauseKind.QUEUE:
        known = set(known_names.some_queues(cursor, schema=schema))
    else:
        known = {*known_names.known_tasks(cursor, schema=schema), *registry.tasks.identifiers()}
    hint = did_you_mean(name, known)
    unknown = UnknownQueueError if kind is PauseKind.QUEUE else UnknownTaskError
    raise unknown(
        f"{kind}: the database has no {kind} {name!r}.{f' {hint}' if hint else ''} To pause it "
        "before its first job is added: create=True."
    )


def _send(signal: signals.NamedSignal, found: Pause, place: Place, *, by: str) -> None:
    """Send the signal when the transaction commits: before, no worker sees the change."""
    arguments: dict[str, Any] = {
        "worker_id": "",
        "database": place.using,
        "installation": place.installation,
        "kind": found.kind.value,
        "name": found.name,
        "until": found.until,
        "reason": found.reason,
        "by": by,
    }
    transaction.on_commit(partial(signal.send_robust, sender=Pause, **arguments), using=place.using, robust=True)


apause = async_variant(pause)
aresume = async_variant(resume)
apauses = async_variant(pauses)
