"""What is asked of the workers: requests to stop running jobs, what is paused, and when a schedule is due."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django_graphile_worker.sql.codecs import int_array, text_array
from django_graphile_worker.sql.statements import statement

# The channel that workers listen to. The payload is the name of the schema.
CONTROL_CHANNEL = "jobs:control"

# One statement for everything: each row has its kind, and its content as JSON. The tables are nearly always empty.
_READ = """
select 'stop', pg_catalog.json_build_array(
    request.job_id, request.token, request.reason, request.requested_by, exists (
        select from only :SCHEMA._private_jobs as job
        where job.id = request.job_id and job.locked_by = request.token))::text
from only :SCHEMA._private_stop_requests as request
where request.worker_id = %(worker_id)s::text
union all
select 'pause', pg_catalog.json_build_array(
    pause.kind, pause.name, pg_catalog.date_part('epoch', pause.paused_until - coalesce(
        %(now)s::timestamptz, pg_catalog.clock_timestamp())),
    pause.handed_to is not null, pause.kind = 'queue' and pause.handed_to is null and not exists (
        select from only :SCHEMA._private_job_queues as queue
        where queue.queue_name = pause.name and queue.locked_by = pause.token))::text
from only :SCHEMA._private_pauses as pause
union all (
select 'schedule', case when schedule.next_at = '-infinity' then '0' else pg_catalog.date_part(
    'epoch', schedule.next_at - coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()))::text end
from only :SCHEMA._private_schedules as schedule
where schedule.next_at < 'infinity' order by schedule.next_at limit 1)"""

READ_CONTROL = f"/* gw:control */{_READ}"

# Notifies the worker's own channel, which proves that its listener receives notifications of other sessions. Not in the
# statement of the beat: it fails if the server's queue of notifications is full, and a beat must not fail.
SEND_PROOF = "/* gw:proof */ select pg_catalog.pg_notify(%(channel)s::text, '')"

# Both in one transaction: each beat needs both, and an idle worker has few other transactions.
READ_CONTROL_AND_PROVE = f"""/* gw:proof */{_READ}
union all select 'proof', pg_catalog.pg_notify(%(channel)s::text, '')::text"""

FORGET_STOPS = """/* gw:forget-stops */
delete from only :SCHEMA._private_stop_requests as request
using rows from (pg_catalog.unnest(%(ids)s::bigint[]), pg_catalog.unnest(%(tokens)s::text[])) as ended(id, token)
where request.job_id = ended.id and request.token = ended.token and not exists (
    select from only :SCHEMA._private_jobs as job where job.id = request.job_id and job.locked_by = request.token)
returning request.job_id"""


class RequestedStop(NamedTuple):
    """The request to stop the run of a claim, in the order of READ_CONTROL."""

    job_id: int
    token: str
    reason: str
    requested_by: str
    # False if the claim has ended without having been stopped.
    is_claimed: bool


class ReadPause(NamedTuple):
    """A pause as workers read it, in the order of READ_CONTROL."""

    # "queue", "task" or "flag".
    kind: str
    name: str
    # None: until it is resumed.
    seconds_left: float | None
    # Whether it is over, and a worker of another kind has the lock of the queue.
    is_handed_over: bool
    # Whether the row of the queue has lost the lock of the pause.
    is_unlocked: bool

    @property
    def holds(self) -> bool:
        return not self.is_handed_over and (self.seconds_left is None or self.seconds_left > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Everything that is asked of one worker."""

    stops: tuple[RequestedStop, ...]
    pauses: tuple[ReadPause, ...]
    # The seconds until a schedule is due; None if there is no schedule that will be due.
    until_schedule: float | None = None


def read_control(
    cursor: Any, worker_id: str, *, schema: str, now: datetime | None = None, proof_channel: str | None = None
) -> Control:
    """Return everything that is asked of this worker. ``now`` is the time of the jobs.

    With a channel, notify it. That fails if the notification queue of the server is full, and nothing is read.
    """
    query = READ_CONTROL if proof_channel is None else READ_CONTROL_AND_PROVE
    parameters = {"worker_id": worker_id, "now": now, "channel": proof_channel}
    cursor.execute(statement(query, schema), parameters)
    rows = [row for row in cursor.fetchall() if row[0] != "proof"]
    if not rows:
        return NOTHING_ASKED
    return Control(
        stops=tuple(RequestedStop(*json.loads(content)) for kind, content in rows if kind == "stop"),
        pauses=tuple(ReadPause(*json.loads(content)) for kind, content in rows if kind == "pause"),
        until_schedule=next((float(content) for kind, content in rows if kind == "schedule"), None),
    )


def send_proof(cursor: Any, channel: str, *, schema: str) -> None:
    """Notify the worker's own channel, without a read of what is asked of the worker."""
    cursor.execute(statement(SEND_PROOF, schema), {"channel": channel})


def forget_stops(cursor: Any, requests: Sequence[RequestedStop], *, schema: str) -> set[int]:
    """Delete requests whose claims have ended; return the ids of their jobs."""
    ids, tokens = [request.job_id for request in requests], [request.token for request in requests]
    cursor.execute(statement(FORGET_STOPS, schema), {"ids": int_array(ids), "tokens": text_array(tokens)})
    return {row[0] for row in cursor.fetchall()}


NOTHING_ASKED = Control(stops=(), pauses=())
