"""Adds many jobs by COPY: the server inserts jobs while the payloads after them are encoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from django.db import connections

from django_graphile_worker import registry, simulation
from django_graphile_worker.api.connection import QueueConnection
from django_graphile_worker.api.entries import entries
from django_graphile_worker.jobs import Job, JobSpec
from django_graphile_worker.plain_payloads import are_plain
from django_graphile_worker.routing import Place
from django_graphile_worker.sql.adding.add_jobs import Batch, batches
from django_graphile_worker.sql.adding.copy_jobs import Rows, can_copy, copied_jobs, reserve_numbers
from django_graphile_worker.sql.adding.specs import Entry
from django_graphile_worker.sql.overlap import Copying, copying, is_in_pipeline, measures_statements

# The fewest jobs that are copied. Fewer jobs are inserted as fast, with one statement less.
COPIED_SPECS = 1_000
# What is written at once: large enough to be fast, small enough for the buffer of a socket.
WRITTEN_SPECS, WRITTEN_CHARACTERS = 250, 1024 * 1024
# If COPY was interrupted this often for the specs of one piece, statements are faster.
MOST_COPIES = 10


def are_copyable(specs: Sequence[JobSpec]) -> bool:
    """Return whether COPY can add the specs: enough of them, all without a key and without a time.

    COPY ends before code of the project runs, so it is of no use for payloads that this code encodes; the first stands
    for all. The keys of limits are computed by such code, too.
    """
    if len(specs) < COPIED_SPECS or simulation.now is not None or not all(map(_is_copyable, specs)):
        return False
    if not are_plain([specs[0].payload]):
        return False
    return not (registry.tasks.has_limits and any(map(_has_limits, {spec.identifier for spec in specs})))


def _is_copyable(spec: object) -> bool:
    # A subclass may have a property.
    if type(spec) is not JobSpec or spec.unique is not None:
        return False
    return spec.job_key is None and spec.run_at is None and spec.expires is None


def _has_limits(identifier: str) -> bool:
    task = registry.tasks.get(identifier)
    return task is not None and bool(task.limits)


class Copier:
    """Adds the specs of one call by COPY, if the connection permits it."""

    def __init__(self, queue: QueueConnection, place: Place) -> None:
        self._queue = queue
        self._place = place
        self._is_interrupted = False

    def is_permitted(self) -> bool:
        """Return whether the session may copy, nothing must see each statement, and COPY is not interrupted often."""
        connection = connections[self._queue.alias]
        if self._is_interrupted or measures_statements(connection) or is_in_pipeline(connection):
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
            for batch in self._encoded(specs, first, sent):
                batch_ids = list(islice(ids, len(batch.specs)))
                sent.write(rows.lines(batch, batch_ids))
                jobs += copied_jobs(batch, batch_ids, numbers) if returning else []
                size += sum(map(len, batch.payloads))
        self._is_interrupted = sent.copies > MOST_COPIES
        return jobs, size

    def _encoded(self, specs: Sequence[JobSpec], first: int, sent: Copying) -> Iterator[Batch]:
        """Return the specs with their payloads. COPY ends before code of the project runs."""
        for start in range(0, len(specs), WRITTEN_SPECS):
            some = specs[start : start + WRITTEN_SPECS]
            has_project_code = not are_plain([spec.payload for spec in some])
            if has_project_code:
                sent.end()
            for batch in _batches(entries(some, self._place, first=first + start, before_logging=sent.end)):
                yield batch
                if has_project_code:
                    sent.end()


def _batches(waiting: Iterator[Entry]) -> Iterator[Batch]:
    return batches(waiting, most_entries=WRITTEN_SPECS, most_unkeyed=WRITTEN_SPECS, most_characters=WRITTEN_CHARACTERS)
