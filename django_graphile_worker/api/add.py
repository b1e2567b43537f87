"""Adds jobs: a single job, or many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, islice
from typing import Any, Literal, Never, overload

from django.db import connections, transaction

from django_graphile_worker import simulation
from django_graphile_worker.api.async_variants import async_variant
from django_graphile_worker.api.connection import QueueConnection, open_place
from django_graphile_worker.api.copying import Copier, are_copyable
from django_graphile_worker.api.entries import entries, entry_of, prepared
from django_graphile_worker.api.simulated import after_adding, stamped
from django_graphile_worker.api.streams import SENT_SPECS, STREAMED_SPECS, add_stream
from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.expiry import Expires
from django_graphile_worker.job_options import JobKeyMode, JobKeyModeOption, Unique
from django_graphile_worker.jobs import Job, JobSpec, TaskLike, too_many_arguments
from django_graphile_worker.routing import Place, place_of
from django_graphile_worker.sql.adding import add_jobs as sql_add_jobs
from django_graphile_worker.sql.adding.add_job import add_job as add_one
from django_graphile_worker.sql.adding.add_jobs import Batch, Call
from django_graphile_worker.sql.overlap import is_outside_transactions, overlapping
from django_graphile_worker.sql.parked_jobs import with_true_times

# The limits of each statement of a list: PostgreSQL takes a value of up to a gigabyte.
LISTED_SPECS, LISTED_CHARACTERS = 1_000_000, 128 * 1024 * 1024


def add_job(
    identifier: str | TaskLike,
    payload: Any = None,
    *mistaken_payloads: Never,
    queue_name: str | None = None,
    run_at: datetime | timedelta | None = None,
    max_attempts: int | None = None,
    job_key: str | None = None,
    job_key_mode: JobKeyModeOption | None = None,
    priority: int | None = None,
    flags: Iterable[str] | None = None,
    expires: Expires | None = None,
    unique: Unique | str | bool | None = None,
    using: str | None = None,
    installation: str | None = None,
    **mistaken: Never,
) -> Job:
    """Add a job in the current transaction, and return it.

    ``using`` is the alias of a database, ``installation`` the alias of an installation in
    ``settings.GRAPHILE_WORKER``. Without them the job is added to the installation ``default``.
    """
    if mistaken_payloads:
        raise too_many_arguments()
    spec = JobSpec(
        identifier,
        payload,
        queue_name=queue_name,
        run_at=run_at,
        max_attempts=max_attempts,
        job_key=job_key,
        job_key_mode=job_key_mode,
        priority=priority,
        flags=flags,
        expires=expires,
        unique=unique,
        **mistaken,
    )
    place = place_of(using, installation)
    (spec,) = prepared([spec], place)
    spec, payload = entry_of(spec, place)
    with open_place(place) as queue:
        cursor, alias, schema, notify, _ = queue
        alone = is_outside_transactions(connections[alias])
        job = add_one(cursor, spec, payload, schema=schema, notify=notify, alone=alone)
        if simulation.now is not None and not job.existed:
            (job,) = stamped(queue, [job])
    if simulation.is_immediate or place.settings.immediate:
        after_adding(place)
    return job


@overload
def add_jobs(
    specs: Iterable[JobSpec],
    *,
    using: str | None = None,
    installation: str | None = None,
    returning: Literal[True] = True,
) -> list[Job]: ...
@overload
def add_jobs(
    specs: Iterable[JobSpec], *, using: str | None = None, installation: str | None = None, returning: Literal[False]
) -> int: ...
@overload
def add_jobs(
    specs: Iterable[JobSpec], *, using: str | None = None, installation: str | None = None, returning: bool
) -> list[Job] | int: ...
def add_jobs(
    specs: Iterable[JobSpec], *, using: str | None = None, installation: str | None = None, returning: bool = True
) -> list[Job] | int:
    """Add many jobs, all or none, and return them in the order of their specs.

    With ``returning=False``, stream any number of specs into the database, and return only the number of jobs.
    """
    if isinstance(specs, JobSpec) or not isinstance(specs, Iterable):
        raise InvalidTypeError(f"specs: expected a list, or another iterable, of JobSpec, got {type(specs).__name__}.")
    place = place_of(using, installation)
    added = _add_list(specs, place) if returning else add_stream(specs, place)
    if simulation.is_immediate or place.settings.immediate:
        after_adding(place)
    return added


def _add_list(specs: Iterable[JobSpec], place: Place) -> list[Job]:
    # The code of an iterable may use the same connection, so it runs before the first statement.
    given = prepared(list(specs), place)
    copied = _copy_list(given, place) if are_copyable(given) else None
    if copied is not None:
        return copied
    batches = _batches(given, place)
    first = list(islice(batches, 2))
    if not first:
        return []
    with open_place(place) as queue:
        if len(first) == 1:
            return stamped(queue, _add_batch(queue, first[0]))
        with transaction.atomic(using=queue.alias):
            return stamped(queue, _add_batches(queue, chain(first, batches)))


def _batches(specs: list[JobSpec], place: Place, *, first: int = 0) -> Iterator[Batch]:
    return sql_add_jobs.batches(
        entries(specs, place, first=first),
        most_entries=LISTED_SPECS,
        most_unkeyed=SENT_SPECS,
        most_characters=LISTED_CHARACTERS,
    )


def _copy_list(specs: list[JobSpec], place: Place) -> list[Job] | None:
    """Add the specs by COPY, as long as it is permitted, and return the jobs; return None if it is not permitted."""
    with open_place(place) as queue:
        copier = Copier(queue, place)
        if not copier.is_permitted():
            return None
        jobs: list[Job] = []
        with transaction.atomic(using=queue.alias):
            while not jobs or (len(jobs) < len(specs) and copier.is_permitted()):
                piece = specs[len(jobs) : len(jobs) + STREAMED_SPECS]
                jobs += copier.add(piece, first=len(jobs), returning=True)[0]
            if len(jobs) < len(specs):
                jobs += _add_batches(queue, _batches(specs[len(jobs) :], place, first=len(jobs)))
        return jobs


def _add_batch(queue: QueueConnection, batch: Batch) -> list[Job]:
    if batch.mode is JobKeyMode.UNSAFE_DEDUPE:
        return sql_add_jobs.add_one_by_one(queue.cursor, batch, schema=queue.schema, notify=queue.notify)
    queue.cursor.execute(*sql_add_jobs.batch_call(batch, schema=queue.schema, notify=queue.notify))
    return _with_true_times(
        queue, batch, sql_add_jobs.jobs_of_batch(queue.cursor.fetchall(), batch, schema=queue.schema)
    )


def _with_true_times(queue: QueueConnection, batch: Batch, jobs: list[Job]) -> list[Job]:
    """Return the jobs of a batch; a job that waits for a limit, and whose time was preserved, has its true time."""
    if batch.mode is not JobKeyMode.PRESERVE_RUN_AT:
        return jobs
    return with_true_times(queue.cursor, jobs, schema=queue.schema)


def _add_batches(queue: QueueConnection, batches: Iterator[Batch]) -> list[Job]:
    """Add the batches. While the server adds one, jobs before it are made and specs after it are encoded."""
    jobs: list[Job] = []
    make_jobs: Callable[[], list[Job]] = list
    batch, call = _next_call(queue, batches)
    while batch is not None:
        if call is None:
            jobs += make_jobs()
            jobs += _add_batch(queue, batch)
            make_jobs, (batch, call) = list, _next_call(queue, batches)
            continue
        with overlapping(connections[queue.alias]):
            queue.cursor.execute(*call)
            jobs += make_jobs()
            following, call = _next_call(queue, batches)
        make_jobs = partial(sql_add_jobs.jobs_of_batch, queue.cursor.fetchall(), batch, schema=queue.schema)
        batch = following
    return jobs + make_jobs()


def _next_call(queue: QueueConnection, batches: Iterator[Batch]) -> tuple[Batch | None, Call | None]:
    """Return the next batch, and the statement that adds it; None if more than this statement is needed."""
    batch = next(batches, None)
    if batch is None or batch.mode in (JobKeyMode.UNSAFE_DEDUPE, JobKeyMode.PRESERVE_RUN_AT):
        return batch, None
    return batch, sql_add_jobs.batch_call(batch, schema=queue.schema, notify=queue.notify)


aadd_job = async_variant(add_job)


@overload
async def aadd_jobs(
    specs: Iterable[JobSpec],
    *,
    using: str | None = None,
    installation: str | None = None,
    returning: Literal[True] = True,
) -> list[Job]: ...
@overload
async def aadd_jobs(
    specs: Iterable[JobSpec], *, using: str | None = None, installation: str | None = None, returning: Literal[False]
) -> int: ...
async def aadd_jobs(
    specs: Iterable[JobSpec], *, using: str | None = None, installation: str | None = None, returning: bool = True
) -> list[Job] | int:
    """Asynchronous variant of ``add_jobs()``."""
    return await _aadd_jobs(specs, using, installation, returning)


def _add_jobs(
    specs: Iterable[JobSpec], using: str | None, installation: str | None, returning: bool
) -> list[Job] | int:
    return add_jobs(specs, using=using, installation=installation, returning=returning)


_aadd_jobs = async_variant(_add_jobs)
