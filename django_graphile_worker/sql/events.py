"""The event log: events that no other statement writes, their list, the alarms of serious ones, and their deletion.

Most events are written by the statement that makes the change that they report, through the function
``_private_add_event`` of ``ddl/operators.sql``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import json_object, text_array
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.statements import Cursor, statement
from django_graphile_worker.text import storable_text

INFORMATION, WARNING, ERROR = 1, 2, 3

# How many rows one call deletes at most, of each kind of deletion.
MAX_DELETED = 1_000
# How many rows are kept, apart from their age: of information, and of warnings and errors.
MAX_INFORMATION = 20_000
MAX_SERIOUS = 20_000

ADD = """/* gw:add-event */
select :SCHEMA._private_add_event(
    %(kind)s::text, %(severity)s::int, %(subject)s::text, %(details)s::jsonb, %(worker_id)s::text, %(identity)s::text,
    %(merges)s::boolean)"""


def _beyond(condition: str, most: str) -> str:
    """Return the select of the oldest of too many rows."""
    return f"""select event.id from only :SCHEMA._private_events as event
        where {condition} and event.id <= (
            select last.id from only :SCHEMA._private_events as last
            where {condition.replace("event.", "last.")} order by last.id desc offset {most} limit 1)
        order by event.id limit {MAX_DELETED} for update skip locked"""


# Rows that another worker deletes at this moment are skipped.
PRUNE = f"""/* gw:prune-events */
with old as materialized (
    select event.id from only :SCHEMA._private_events as event
    where event.last_at < now() - %(seconds)s::float8 * interval '1 second'
    order by event.last_at limit {MAX_DELETED} for update skip locked
), information as materialized (
    {_beyond("event.severity = 1", "%(most_information)s::int")}
), serious as materialized (
    {_beyond("event.severity > 1", "%(most_serious)s::int")}
)
delete from only :SCHEMA._private_events as event
where event.id = any (array(select id from old union select id from information union select id from serious))"""

# An event that is repeated after the user looked at it stays.
DISMISS = """/* gw:dismiss-events */
update only :SCHEMA._private_events as event
set dismissed_at = clock_timestamp(), dismissed_by = %(by)s::text
where event.severity > 1 and event.dismissed_at is null and event.kind = %(kind)s::text
    and event.last_at <= %(until)s::timestamptz"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to be written."""

    kind: str
    subject: str
    severity: int = WARNING
    details: Mapping[str, Any] = field(default_factory=dict)
    # What makes the event the same for all workers that find it: the first of them writes it.
    identity: str | None = None
    # Whether it is added to an event of the same kind and subject within the last hour.
    merges: bool = False
    worker_id: str | None = None


def add(cursor: Any, event: NewEvent, *, schema: str) -> bool:
    """Write an event; return False if another worker has written it, or if it cannot be written."""
    parameters = {
        "kind": event.kind,
        "severity": event.severity,
        "subject": storable_text(event.subject),
        "details": json.dumps({name: _storable(value) for name, value in event.details.items()}),
        "worker_id": event.worker_id,
        "identity": event.identity,
        "merges": event.merges,
    }
    cursor.execute(statement(ADD, schema), parameters)
    return cursor.fetchone()[0] is not None


def _storable(value: object) -> object:
    return storable_text(value) if isinstance(value, str) else value


def prune(
    cursor: Any,
    *,
    schema: str,
    older_than: float,
    most_information: int = MAX_INFORMATION,
    most_serious: int = MAX_SERIOUS,
) -> int:
    """Delete some of the events that are older than this many seconds, or too many; return how many."""
    parameters = {"seconds": older_than, "most_information": most_information, "most_serious": most_serious}
    cursor.execute(statement(PRUNE, schema), parameters)
    return int(cursor.rowcount)


def dismiss(cursor: Cursor, kind: str, *, until: datetime, by: str, schema: str) -> int:
    """Dismiss the alarms of a kind up to a time; return how many events they were."""
    cursor.execute(statement(DISMISS, schema), {"kind": kind, "until": until, "by": by})
    return cursor.rowcount


# Alarms are read from at most this many events.
MAX_ALARMING = 500
# An alarm names so many jobs of each kind.
MAX_SUSPECTS = 5
# Hours for which a serious event is an alarm, unless it is dismissed.
ALARM_HOURS = 24

# The event of a lost worker also says what became of its jobs: the event of their recovery has the same worker.
_COLUMNS = f"""event.id, event.kind, event.severity, event.subject, event.worker_id, {readable("event.first_at")},
    {readable("event.last_at")}, event.number, event.details::text, {readable("event.dismissed_at")},
    event.dismissed_by, (
        select recovered.details::text from only :SCHEMA._private_events as recovered
        where event.kind = 'worker_lost' and recovered.worker_id = event.worker_id
            and recovered.kind = 'jobs_recovered'
        order by recovered.id desc limit 1)"""

FIND_EVENTS = f"""/* gw:events */
select {_COLUMNS}
from only :SCHEMA._private_events as event
where (%(kinds)s::text[] is null or event.kind = any (%(kinds)s::text[]))
    and event.severity >= %(severity)s::int
    and (%(worker)s::text is null or event.worker_id = %(worker)s::text or event.subject = %(worker)s::text)
    and (%(text)s::text = '' or position(lower(%(text)s::text) in lower(event.subject)) > 0
        or position(lower(%(text)s::text) in lower(event.details::text)) > 0)
    and (%(since)s::timestamptz is null or event.last_at >= %(since)s::timestamptz)
    and (%(until)s::timestamptz is null or event.last_at < %(until)s::timestamptz)
    and (%(before_id)s::bigint is null
        or (event.last_at, event.id) < (%(before)s::timestamptz, %(before_id)s::bigint))
order by event.last_at desc, event.id desc
limit %(limit)s::int"""

ALARMS = f"""/* gw:alarms */
with recent as materialized (
    select event.* from only :SCHEMA._private_events as event
    where event.severity > 1 and event.dismissed_at is null and event.last_at > now() - interval '{ALARM_HOURS} hours'
    order by event.last_at desc limit {MAX_ALARMING}
), counted as (
    select recent.id, sum(recent.number) over (partition by recent.kind)::bigint as total,
        coalesce(sum(recent.number) filter (where recent.last_at > now() - interval '1 hour')
            over (partition by recent.kind), 0)::bigint as in_last_hour,
        row_number() over (partition by recent.kind order by recent.last_at desc, recent.id desc) as place
    from recent
)
select {_COLUMNS}, counted.total, counted.in_last_hour, array(
    select recovered.details::text
    from recent
    cross join lateral (
        select each.details from only :SCHEMA._private_events as each
        where each.worker_id = recent.worker_id and each.kind = 'jobs_recovered'
        order by each.id desc limit 1) as recovered
    where event.kind = 'worker_lost' and recent.kind = event.kind
    order by recent.last_at desc, recent.id desc)
from counted join only :SCHEMA._private_events as event on event.id = counted.id
where counted.place = 1
order by event.severity desc, event.last_at desc"""


class LoggedEvent(NamedTuple):
    """An event, in the order of the columns."""

    id: int
    kind: str
    severity: int
    subject: str
    worker_id: str | None
    first_at: datetime
    last_at: datetime
    # How many events the row stands for.
    number: int
    details_text: str
    dismissed_at: datetime | None
    dismissed_by: str | None
    # The details of the recovery of a lost worker's jobs.
    recovered_text: str | None = None

    @property
    def details(self) -> dict[str, Any]:
        return json_object(self.details_text)

    @property
    def recovered(self) -> dict[str, Any]:
        return json_object(self.recovered_text)


class Alarm(NamedTuple):
    """The serious events of one kind that are not dismissed: the newest, and how many there are."""

    event: LoggedEvent
    number: int
    in_last_hour: int
    # The details of the recovery of the jobs of each lost worker.
    recovered_texts: Sequence[str] = ()

    @property
    def suspects(self) -> dict[str, list[Any]]:
        """The jobs that all these recoveries name, by what they say about them."""
        recoveries = [json_object(text) for text in self.recovered_texts]
        found: dict[str, list[Any]] = {"exhausted_ids": [], "suspected_ids": []}
        for key, ids in found.items():
            for named in (recovered.get(key) for recovered in recoveries):
                ids += named if isinstance(named, list) else []
            ids[:] = list(dict.fromkeys(each for each in ids if isinstance(each, int)))[:MAX_SUSPECTS]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCriteria:
    """Which events to read."""

    kinds: Sequence[str] | None = None
    severity: int = 1
    # The id of a worker, or the subject of the event, such as the host of a worker.
    worker: str | None = None
    # A part of the subject, or of any detail.
    text: str = ""
    since: datetime | None = None
    until: datetime | None = None
    # Only events before this event, as (last_at, id).
    before: tuple[datetime, int] | None = None


def find_events(cursor: Any, criteria: EventCriteria, *, schema: str, limit: int) -> list[LoggedEvent]:
    """Return events that meet the criteria, the newest first."""
    before, before_id = criteria.before or (None, None)
    parameters = {
        "kinds": None if criteria.kinds is None else text_array(list(criteria.kinds)),
        "severity": criteria.severity,
        "worker": criteria.worker,
        "text": criteria.text,
        "since": criteria.since,
        "until": criteria.until,
        "before": before,
        "before_id": before_id,
        "limit": limit,
    }
    cursor.execute(statement(FIND_EVENTS, schema), parameters)
    return [LoggedEvent._make(row) for row in cursor.fetchall()]


def alarms(cursor: Any, *, schema: str) -> list[Alarm]:
    """Return the alarms, errors first, each kind of event once."""
    cursor.execute(statement(ALARMS, schema))
    return [Alarm(LoggedEvent._make(row[:-3]), *row[-3:]) for row in cursor.fetchall()]
