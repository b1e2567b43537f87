"""What is asked of the workers: requests to stop running jobs."""

from __future__ import annotations

from typing import Any, NamedTuple

from django_graphile_worker.frozen import Frozen
from django_graphile_worker.sql.schema import statement

# The channel that workers listen to. The payload is the name of the schema.
CONTROL_CHANNEL = "jobs:control"

# One statement for everything: each row has its kind, and its content as JSON. The tables are nearly always empty.
READ_CONTROL = """/* gw:control */
select 'stop', pg_catalog.json_build_array(
    request.job_id, request.token, request.reason, request.requested_by)::text
from :SCHEMA._private_stop_requests as request
where request.worker_id = %(worker_id)s::text"""


class RequestedStop(NamedTuple):
    """The request to stop the run of a claim: why, and who asked for it. In the order of READ_CONTROL."""

    job_id: int
    token: str
    reason: str
    requested_by: str


class Control(Frozen):
    """Everything that is asked of one worker."""

    stops: tuple[RequestedStop, ...]


def read_control(cursor: Any, worker_id: str, *, schema: str) -> Control:
    """Return everything that is asked of this worker."""
    cursor.execute(statement(READ_CONTROL, schema), {"worker_id": worker_id})
    rows = cursor.fetchall()
    if not rows:
        return NOTHING_ASKED
    # Late import: most workers are never asked for anything.
    import json

    return Control(stops=tuple(RequestedStop(*json.loads(content)) for kind, content in rows if kind == "stop"))


NOTHING_ASKED = Control(stops=())
