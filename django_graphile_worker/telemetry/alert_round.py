"""One round of alerts: claim the state, read the facts, judge, tell, and store the state.

The state is stored before the first message is sent, with the news that wait for each destination, and after each
message. So a process that dies in between has another tell once more, but only the destination that it was at. What a
destination did not take waits in the state for the next round.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple, Protocol, TypeVar

from psycopg.errors import QueryCanceled

from django_graphile_worker import conf, recurring
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.routing import Place
from django_graphile_worker.setting_types import AlertSettings
from django_graphile_worker.sql import alerts as sql_alerts
from django_graphile_worker.sql.control import active_pauses
from django_graphile_worker.sql.inspection import diagnosis, error_groups, lock_holders, overview
from django_graphile_worker.sql.inspection.job_list import oldest_ready
from django_graphile_worker.sql.inspection.statement_limits import limit_statements
from django_graphile_worker.sql.schedules import listing
from django_graphile_worker.sql.schedules.from_code import known_crontabs
from django_graphile_worker.telemetry.alert_delivery import DeliveryError, compose, deliver, label, logger
from django_graphile_worker.telemetry.alerts import (
    MAX_ERRORS,
    MORE_ERRORS,
    NEW_ERROR,
    NO_WORKER,
    PERMANENTLY_FAILED,
    SCHEDULES,
    TOO_MANY_ERRORS,
    Condition,
    ErrorFacts,
    Facts,
    News,
    condition_of,
    judge,
    usable,
)
from django_graphile_worker.text import readable_duration

# Seconds that one statement may take, and that a round may take before another process does it.
LONGEST_READING = 10.0
LONGEST_ROUND = 120.0
# Workers come after at least 0.85 of the interval.
FREE_AFTER = 0.8
# How many news wait for a destination, and how many characters of an error are told.
MAX_PENDING = 5_000
MAX_DETAIL = 300
# Among so many tasks that no live worker has, that of the oldest job is looked for.
MAX_UNSERVED = 1_000

ERRORS = (PERMANENTLY_FAILED, NEW_ERROR, MORE_ERRORS, TOO_MANY_ERRORS)

Value = TypeVar("Value")


class Database(Protocol):
    """A connection of a worker, or one like it: it commits each statement."""

    schema: str
    # Seconds that a statement may take.
    deadline: float

    def cursor(self) -> AbstractContextManager[Any]: ...


class Round(NamedTuple):
    """What a round has told: the subject and the result for each destination that was told something."""

    told: list[tuple[str, str]]
    failed: list[tuple[str, str]]


def run_round(database: Database, place: Place, settings: AlertSettings) -> Round | None:
    """Judge, and tell what is new; return None if another process has done so within the interval."""
    by, began = secrets.token_hex(8), time.monotonic()
    longest = max(LONGEST_ROUND, settings.interval)
    with database.cursor() as cursor:
        stored = sql_alerts.claim(cursor, by, schema=database.schema, seconds=LONGEST_ROUND, longest=longest)
    if stored is None:
        return None
    before = usable(stored.state)
    news, state = judge(read_facts(database, place, settings, stored.now), before, settings)
    state["pending"] = _waiting(news, before.get("pending", {}), settings)

    def store(seconds: float, *, is_over: bool) -> bool:
        with database.cursor() as cursor:
            return sql_alerts.store(cursor, by, state, schema=database.schema, seconds=seconds, is_over=is_over)

    done = Round([], [])
    for destination in settings.to:
        if _key(destination) not in state["pending"]:
            continue
        # No delivery takes as long as the claim. If another process has the claim, it tells.
        if not store(LONGEST_ROUND, is_over=False):
            return done
        _tell(destination, state["pending"], done, place, settings)
    store(max(settings.interval * FREE_AFTER - (time.monotonic() - began), 0.0), is_over=True)
    return done


def _key(destination: str) -> str:
    """Return what stands for a destination in the state: the URL of a webhook is a secret."""
    return sha256(destination.encode()).hexdigest()[:16]


def _waiting(news: list[News], pending: Mapping[str, Any], settings: AlertSettings) -> dict[str, list[Any]]:
    """Return what waits for each destination: what it did not take before, and the news."""
    fresh = [(each.phase, asdict(each.condition), each.at, each.more) for each in news]
    waiting = {key: [*pending.get(key, ()), *fresh][-MAX_PENDING:] for key in map(_key, settings.to)}
    return {key: each for key, each in waiting.items() if each}


def _tell(destination: str, pending: dict[str, list[Any]], done: Round, place: Place, settings: AlertSettings) -> None:
    """Tell a destination what waits for it; what it does not take waits for the next round."""
    key, name = _key(destination), label(destination)
    message = compose([News(phase, condition_of(each), at, more) for phase, each, at, more in pending[key]], place)
    try:
        result = deliver(message, destination, place)
    except DeliveryError as error:
        done.failed.append((name, str(error)))
        text = "Alerts were not delivered to %s: %s. The next try is in about %.0f s."
        logger.error(text, name, error, settings.interval)
    else:
        del pending[key]
        logger.info("An alert was delivered to %s (%s): %s", name, result, message.subject)
        done.told.append((name, f"{result}: {message.subject}"))


def read_facts(database: Database, place: Place, settings: AlertSettings, now: float) -> Facts:
    """Read what the conditions of the settings need. What takes too long is unknown in this round."""
    return _Reader(database, place, settings, now).facts()


class _Reader:
    def __init__(self, database: Database, place: Place, settings: AlertSettings, now: float) -> None:
        self._database, self._place, self._settings, self._now = database, place, settings, now
        self._unknown: set[str] = set()
        self._has_more_errors = False

    def facts(self) -> Facts:
        wanted = self._settings
        reads_errors = wanted.permanently_failed or wanted.new_error or wanted.more_errors is not None
        ((alive_since, lived_at),) = self._read(self._workers, NO_WORKER) or [(None, None)]
        return Facts(
            now=self._now,
            errors=self._read(self._errors, *ERRORS) if reads_errors else [],
            has_more_errors=self._has_more_errors,
            alive_since=alive_since,
            lived_at=lived_at,
            others=[
                *(self._read(self._oldest, "oldest_ready") if wanted.oldest_ready is not None else ()),
                *(self._read(self._schedules, *SCHEDULES) if wanted.schedules else ()),
                *(self._read(self._pauses, "paused") if wanted.paused is not None else ()),
                *(self._read(self._transaction, "old_transaction") if wanted.old_transaction is not None else ()),
            ],
            unknown=frozenset(self._unknown),
        )

    def _read(self, read: Callable[[Any], Iterator[Value]], *kinds: str) -> list[Value]:
        try:
            with self._database.cursor() as cursor, cursor.connection.transaction():
                limit_statements(cursor, timeout=min(LONGEST_READING, self._database.deadline))
                return list(read(cursor))
        except QueryCanceled:
            self._unknown.update(kinds)
            return []

    @property
    def _schema(self) -> str:
        return self._database.schema

    def _errors(self, cursor: Any) -> Iterator[ErrorFacts]:
        groups = error_groups.error_groups(cursor, schema=self._schema, most_groups=MAX_ERRORS + 1)
        self._has_more_errors = len(groups) > MAX_ERRORS
        for each in groups[:MAX_ERRORS]:
            detail = redact_text(each.latest_error.partition("\n")[0])[:MAX_DETAIL]
            since = each.first_seen.timestamp()
            yield ErrorFacts(each.task_identifier, each.name, each.number, each.failed, each.is_more, since, detail)

    def _workers(self, cursor: Any) -> Iterator[tuple[float | None, float | None]]:
        """Yield when the first of the live workers started, and when one was alive before that."""
        timeout = self._place.settings.worker_timeout
        found = lock_holders.holders(cursor, schema=self._schema, most_locks=1)
        alive = [each.started_at.timestamp() for each in found if each.is_registered and each.is_alive(timeout)]
        since = min(alive, default=None)
        yield since, sql_alerts.lived_at(cursor, self._now if since is None else since, schema=self._schema)

    def _oldest(self, cursor: Any) -> Iterator[Condition]:
        pauses = active_pauses(cursor, schema=self._schema)
        oldest = (
            overview.oldest_unpaused(cursor, pauses, schema=self._schema)
            if pauses
            else oldest_ready(cursor, schema=self._schema)
        )
        waited = self._age(oldest.run_at) if oldest else 0.0
        if oldest and waited > (self._settings.oldest_ready or 0.0):
            text = f"Jobs wait too long: {oldest.task_identifier} #{oldest.id} has been ready for "
            text += readable_duration(waited)
            timeout = self._place.settings.worker_timeout
            unserved = overview.unserved_tasks(cursor, schema=self._schema, timeout=timeout, most=MAX_UNSERVED)
            if any(each.identifier == oldest.task_identifier for each in unserved):
                text += " (no live worker has this task)"
            yield Condition(kind="oldest_ready", text=text, since=oldest.run_at.timestamp())

    def _pauses(self, cursor: Any) -> Iterator[Condition]:
        for each in active_pauses(cursor, schema=self._schema):
            if self._age(each.paused_at) > (self._settings.paused or 0.0):
                name, by = f"{each.kind} {each.name}", f" by {each.by}" if each.by else ""
                text = f"The {name} has been paused for {readable_duration(self._age(each.paused_at))}{by}"
                since = each.paused_at.timestamp()
                yield Condition(kind="paused", subject=name, text=text, detail=each.reason, since=since)

    def _transaction(self, cursor: Any) -> Iterator[Condition]:
        for holder in diagnosis.snapshot_holders(cursor, seconds=self._settings.old_transaction or 0.0):
            since = None if holder.seconds is None else self._now - holder.seconds
            subject = f"{holder.kind} {holder.name}"
            yield Condition(
                kind="old_transaction", subject=subject, text=holder.text, detail=holder.remedy, since=since
            )

    def _schedules(self, cursor: Any) -> Iterator[Condition]:
        schema, is_default = self._schema, self._place.installation == conf.DEFAULT
        try:
            items = recurring.collect(self._place.settings, with_tasks=is_default)
        except GraphileWorkerError:
            # The system checks report it.
            items = ()
        names = [item.name for item in items]
        known, now = known_crontabs(cursor, names, schema=schema), datetime.fromtimestamp(self._now, UTC)
        late = [(item.name, seconds) for item, seconds in recurring.late_items(items, known, now)]
        late += [(each.name, self._age(each.due_at)) for each in listing.late(cursor, schema=schema)]
        for name, seconds in late:
            text = f"The schedule {name} is late: it was due {readable_duration(seconds)} ago"
            yield Condition(kind=SCHEDULES[0], subject=name, text=text, since=self._now - seconds)
        missed, failing = listing.troubled(cursor, schema=schema)
        for name in [*missed, *listing.missed_items(cursor, names, schema=schema)]:
            text = f"The schedule {name} has missed a time: no worker fired it"
            yield Condition(kind=SCHEDULES[1], subject=name, text=text)
        for name in [*failing, *listing.failing_crontabs(cursor, names, schema=schema)]:
            yield Condition(kind=SCHEDULES[2], subject=name, text=f"The last run of the schedule {name} failed")

    def _age(self, moment: datetime) -> float:
        return self._now - moment.timestamp()
