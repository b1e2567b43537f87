"""What adding a job does in addition while a test moves the clock, or in immediate mode."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Never

from django_graphile_worker import registry, simulation
from django_graphile_worker.api.connection import QueueConnection
from django_graphile_worker.exceptions import UnknownTaskError
from django_graphile_worker.jobs import Job
from django_graphile_worker.routing import Place
from django_graphile_worker.sql import simulation as sql_simulation


def stamped(queue: QueueConnection, jobs: Sequence[Job]) -> list[Job]:
    """Return added jobs with the time of the test's clock as the time at which they were added, also in the database.

    Without a clock of a test, return them as they are.
    """
    if simulation.now is None:
        return list(jobs)
    new = [job.id for job in jobs if not job.existed]
    times = sql_simulation.stamp(queue.cursor, new, simulation.now(), schema=queue.schema)
    return [
        dataclasses.replace(job, created_at=times[job.id][0], updated_at=times[job.id][1]) if job.id in times else job
        for job in jobs
    ]


def refuse_unknown_task(name: str) -> Never:
    """Raise UnknownTaskError: in immediate mode a job runs in this process, and no other worker can have its task."""
    # Late import: only a mistake needs suggestions.
    from django_graphile_worker.suggestions import did_you_mean

    hint = did_you_mean(name, registry.tasks.identifiers())
    raise UnknownTaskError(
        f"add_job() in immediate mode: expected a task of this project, got {name!r}."
        f"{f' {hint}' if hint else ' Register it with @task, in a module tasks.py of an installed app.'}"
    )


def after_adding(place: Place) -> None:
    """Run the jobs of immediate mode when the transaction that added them has ended."""
    # Late import: production does not use the immediate mode, and the layers forbid the import at the top.
    from django_graphile_worker.testing.immediate_mode import run_after_transaction

    run_after_transaction(place)
