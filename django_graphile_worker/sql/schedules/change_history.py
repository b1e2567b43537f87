"""The changes of a schedule, as the triggers have recorded them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.sql.schema import statement

# A payload with a longer text is not read: the page says only that it was changed.
LONGEST_PAYLOAD = 20_000

CHANGES = f"""/* gw:schedules:changes */
select change.id, change.changed_at, change.changed_by, (change.before - 'payload'::text)::text,
  (change.after - 'payload'::text)::text,
  change.after is not null and change.before -> 'payload' <> change.after -> 'payload',
  case when %(payloads)s and length(change.before ->> 'payload') <= {LONGEST_PAYLOAD}
    then change.before ->> 'payload' end,
  case when %(payloads)s and length(change.after ->> 'payload') <= {LONGEST_PAYLOAD}
    then change.after ->> 'payload' end
from :SCHEMA._private_schedule_changes as change
where change.schedule_id = %(schedule)s
order by change.id desc
limit %(number)s"""


class RecordedChange(NamedTuple):
    """A change. ``before`` and ``after`` are the definition without its payload; ``after`` is None for a deletion."""

    id: int
    changed_at: datetime
    changed_by: str
    before: dict[str, Any]
    after: dict[str, Any] | None
    is_payload_changed: bool
    # JSON; None if it was not asked for, or is too long.
    payload_before: str | None
    payload_after: str | None


def changes_of(
    cursor: Any, schedule_id: int, *, number: int, schema: str, with_payloads: bool = False
) -> list[RecordedChange]:
    """Return the latest changes of a schedule, the newest first."""
    values = {"schedule": schedule_id, "number": number, "payloads": with_payloads}
    cursor.execute(statement(CHANGES, schema), values)
    return [
        RecordedChange(id_, at, by, json.loads(before), None if after is None else json.loads(after), *payloads)
        for id_, at, by, before, after, *payloads in cursor.fetchall()
    ]
