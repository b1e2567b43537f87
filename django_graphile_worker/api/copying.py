"""Adds many jobs by COPY: the server inserts jobs while the payloads after them are encoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from django.db import connections

from django_graphile_worker import registry, simulation
from django_graphile_worker.api.connection import QueueConnection
from django_graphile_worker.api.entries import entries
from django_graphile_worker.jobs import Job, JobSpec
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.adding.add_jobs import Batch, Entry, batches
from django_graphile_worker.sql.adding.copy_jobs import Rows, can_copy, copied_jobs, reserve_numbers
from django_graphile_worker.sql.overlap import Copying, copying, is_in_pipeline, measures_statements

# The fewest jobs that are copied. Fewer jobs are inserted as fast, with one statement less.
COPIED_SPECS = 1_000
# What is written at once: large enough to be fast, small enough for the buffer of a socket.
WRITTEN_SPECS, WRITTEN_CHARACTERS = 250, 1024 * 1024


def are_copyable(specs: Sequence[JobSpec]) -> bool:
    """Return whether COPY can add the specs: enough of them, all without a key and without a time.

    The keys of limits are computed by code of the project, so a task with limits is not copied.
    """
    if len(specs) < COPIED_SPECS or simulation.now is not None or not all(map(_is_copyable, specs)):
        return False
    return not (registry.tasks.has_limits and any(map(_has_limits, {spec.identifier for spec in specs})))


def _is_copyable(spec: object) -> bool:
    return isinstance(spec, JobSpec) and spec.job_key is None and spec.run_at is None and spec.expires is None


def _has_limits(identifier: str) -> bool:
    task = registry.tasks.get(identifier)
    return task is not None and bool(task.limits)


class Copier:
    """Adds the specs of one call by COPY, if the connection permits it."""

    def __init__(self, queue: QueueConnection, place: Place) -> None:
        self._queue = queue
        self._place = place
        self._sees_project_code = False

    def is_permitted(self) -> bool:
        """Return whether the session may copy, nothing must see each statement, and COPY is of use.

        COPY ends before code of the project encodes a payload. If it did once, statements are faster.
        """
        connection = connections[self._queue.alias]
        if self._sees_project_code or measures_statements(connection) or is_in_pipeline(connection):
            return False
        return can_copy(self._queue.cursor, schema=self._queue.schema)

    def add(self, specs: Sequence[JobSpec], *, first: int, returning: bool) -> tuple[list[Job], int]:
        """Add the specs; errors count them from ``first``.

        Return the jobs, and the number of characters of the payloads. Without ``returning`` there are no jobs.
        """
        queue = self._queue
        numbers = reserve_numbers(queue.cursor, specs, schema=queue.schema, notify=queue.notify, returning=returning)
        rows, ids = Rows.of_specs(specs, numbers), iter(numbers.ids)
        jobs: list[Job] = []
        size = 0
        with copying(connections[queue.alias], rows.statement(queue.schema)) as sent:
            for batch in self._batches(specs, first, sent):
                batch_ids = list(islice(ids, len(batch.specs)))
                sent.write(rows.lines(batch, batch_ids))
                jobs += copied_jobs(batch, batch_ids, numbers) if returning else []
                size += sum(map(len, batch.payloads))
        return jobs, size

    def _batches(self, specs: Sequence[JobSpec], first: int, sent: Copying) -> Iterator[Batch]:
        def before_project_code() -> None:
            self._sees_project_code = True
            sent.end()

        waiting: Iterator[Entry] = entries(specs, self._place, first=first, before_project_code=before_project_code)
        return batches(
            waiting, most_entries=WRITTEN_SPECS, most_unkeyed=WRITTEN_SPECS, most_characters=WRITTEN_CHARACTERS
        )
