"""Adds many jobs by COPY: the server inserts jobs while the payloads after them are encoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from django.db import connections

from django_graphile_worker import simulation
from django_graphile_worker.api.connection import QueueConnection
from django_graphile_worker.jobs import Job, JobSpec
from django_graphile_worker.sql.adding.add_jobs import Batch, Entry, batches
from django_graphile_worker.sql.adding.copy_jobs import Rows, can_copy, copied_jobs, reserve_numbers
from django_graphile_worker.sql.adding.insert_jobs import not_inserted
from django_graphile_worker.sql.overlap import copying, measures_statements

# The fewest jobs that are copied. Fewer jobs are inserted as fast, with one statement less.
COPIED_SPECS = 2_000
# What is written at once: large enough to be fast, small enough for the buffer of a socket.
WRITTEN_SPECS, WRITTEN_CHARACTERS = 250, 1024 * 1024


def are_copyable(specs: Sequence[JobSpec]) -> bool:
    """Return whether COPY can add the specs: enough of them, all without a key and without a time."""
    return len(specs) >= COPIED_SPECS and all(map(_is_copyable, specs))


def _is_copyable(spec: object) -> bool:
    return isinstance(spec, JobSpec) and spec.job_key is None and spec.run_at is None


class Copier:
    """Adds the specs of one call by COPY, if the connection permits it."""

    def __init__(self, queue: QueueConnection) -> None:
        self._queue = queue
        self._has_rights: bool | None = None

    def is_permitted(self) -> bool:
        """Return whether the role may copy, and nothing must see each statement."""
        if simulation.now is not None or measures_statements(connections[self._queue.alias]):
            return False
        if self._has_rights is None:
            self._has_rights = can_copy(self._queue.cursor, schema=self._queue.schema)
        return self._has_rights

    def add(self, specs: Sequence[JobSpec], waiting: Iterator[Entry], *, returning: bool) -> tuple[list[Job], int]:
        """Add the specs; ``waiting`` has them with their payloads.

        Return the jobs, and the number of characters of the payloads. Without ``returning`` there are no jobs.
        """
        queue = self._queue
        numbers = reserve_numbers(queue.cursor, specs, schema=queue.schema, notify=queue.notify, returning=returning)
        rows, ids = Rows.of_specs(specs, numbers), iter(numbers.ids)
        jobs: list[Job] = []
        size = 0
        with copying(connections[queue.alias], rows.statement(queue.schema)) as sent:
            for batch in _batches(waiting):
                batch_ids = list(islice(ids, len(batch.specs)))
                sent.write(rows.lines(batch, batch_ids))
                jobs += copied_jobs(batch, batch_ids, numbers) if returning else []
                size += sum(map(len, batch.payloads))
        if returning and sent.count != len(specs):
            raise not_inserted(queue.schema)
        return jobs, size


def _batches(waiting: Iterator[Entry]) -> Iterator[Batch]:
    return batches(waiting, most_entries=WRITTEN_SPECS, most_unkeyed=WRITTEN_SPECS, most_characters=WRITTEN_CHARACTERS)
