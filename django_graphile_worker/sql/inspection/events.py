"""Events as operators read them: the newest first, and the alarms that serious events raise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import json_object, text_array
from django_graphile_worker.sql.codecs import within_python_years as readable
from django_graphile_worker.sql.statements import statement

# Alarms are read from at most this many events.
MOST_ALARMING = 500
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

PAGE = f"""/* gw:events */
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
    order by event.last_at desc limit {MOST_ALARMING}
), counted as (
    select recent.id, sum(recent.number) over (partition by recent.kind)::bigint as total,
        coalesce(sum(recent.number) filter (where recent.last_at > now() - interval '1 hour')
            over (partition by recent.kind), 0)::bigint as in_last_hour,
        row_number() over (partition by recent.kind order by recent.last_at desc, recent.id desc) as place
    from recent
)
select {_COLUMNS}, counted.total, counted.in_last_hour
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


def find(cursor: Any, criteria: EventCriteria, *, schema: str, limit: int) -> list[LoggedEvent]:
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
    cursor.execute(statement(PAGE, schema), parameters)
    return [LoggedEvent._make(row) for row in cursor.fetchall()]


def alarms(cursor: Any, *, schema: str) -> list[Alarm]:
    """Return the alarms, errors first, each kind of event once."""
    cursor.execute(statement(ALARMS, schema))
    return [Alarm(LoggedEvent._make(row[:-2]), row[-2], row[-1]) for row in cursor.fetchall()]
