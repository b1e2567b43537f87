"""The line of a job that succeeded, on the short way: most lines of a worker are of this kind.

While the log of ``runworker`` on standard error is the only handler, the line needs neither a signal nor a record. The
thread that ran the job passes on what the line says, and the thread that writes the log makes the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import TYPE_CHECKING, Any

from django_graphile_worker.logs.lines import place_key, run_template, served_databases
from django_graphile_worker.text import readable_duration, shown

if TYPE_CHECKING:
    from typing import Protocol

    from django_graphile_worker.jobs import Job
    from django_graphile_worker.logs.lines import JobFacts
    from django_graphile_worker.sql.claims import Claim

    class Console(Protocol):
        """The handler that writes to standard error."""

        def is_alone(self) -> bool:
            """Return whether logging would pass the record of a line to this handler, unchanged, and to no other."""

        def put_success(self, line: SuccessLine, /) -> None:
            """Write the line."""


_TEMPLATE = run_template("succeeded")
# The time, the place if the line names it, the task identifier, the id, the duration, the attempt, max_attempts.
SuccessLine = tuple[float, str | None, str, int, float, int, int]

# Set by runworker, if the project does not configure logging.
console: Console | None = None


def write(identifier: str, job: Claim | Job | JobFacts, duration: float, about: Mapping[str, Any]) -> bool:
    """Write the line on the short way; return False if it has to take the ordinary way."""
    if console is None or not console.is_alone():
        return False
    place = about.get(place_key()) if served_databases.are_several else None
    console.put_success((time(), place, identifier, job.id, duration, job.attempts, job.max_attempts))
    return True


def message(line: SuccessLine) -> str:
    """Return the text of the line, without its time: the same as the message of a record."""
    _, place, identifier, job_id, duration, attempt, max_attempts = line
    text = _TEMPLATE % (shown(identifier), job_id, readable_duration(duration), attempt, max_attempts)
    return f"[{shown(place)}] {text}" if place else text
