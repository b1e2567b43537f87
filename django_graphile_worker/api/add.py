"""Adds jobs: a single job, or many."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import Any, Literal, Never, Unpack, overload

from django.db import transaction

from django_graphile_worker import simulation
from django_graphile_worker.api.async_variants import async_variant
from django_graphile_worker.api.connection import open_place
from django_graphile_worker.api.entries import entries, entry_of, prepared, prepared_stream
from django_graphile_worker.api.simulated import after_adding, stamped
from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.job_options import SpecOptions
from django_graphile_worker.jobs import Job, JobSpec, TaskLike, too_many_arguments
from django_graphile_worker.routing import Place, place_of
from django_graphile_worker.sql.adding import add_batch, add_batch_blindly, batches
from django_graphile_worker.sql.adding import add_job as add_one

# The limits of each statement of a list: PostgreSQL takes a value of up to a gigabyte.
LISTED_SPECS, LISTED_CHARACTERS = 1_000_000, 128 * 1024 * 1024
# The limits of each statement of a stream: large enough to be fast, small enough for the memory of the process.
STREAMED_SPECS, STREAMED_CHARACTERS = 20_000, 4 * 1024 * 1024


def add_job(
    identifier: str | TaskLike,
    payload: Any = None,
    *mistaken_payloads: Never,
    using: str | None = None,
    installation: str | None = None,
    **options: Unpack[SpecOptions],
) -> Job:
    """Add a job in the current transaction, and return it.

    ``using`` is the alias of a database, ``installation`` the alias of an installation in
    ``settings.GRAPHILE_WORKER``. Without them the job is added to the installation ``default``. The other options are
    those of the job, as ``JobSpec`` takes them.
    """
    if mistaken_payloads:
        raise too_many_arguments()
    return add_spec(JobSpec(identifier, payload, **options), using=using, installation=installation)


def add_spec(spec: JobSpec, *, using: str | None, installation: str | None) -> Job:
    """Add one job in the current transaction, and return it."""
    place = place_of(using, installation)
    (spec,) = prepared([spec], place)
    spec, payload = entry_of(spec, place)
    with open_place(place) as queue:
        job = add_one(queue.cursor, spec, payload, schema=queue.schema, notify=queue.notify)
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
    added = _add_list(specs, place) if returning else _add_stream(specs, place)
    if simulation.is_immediate or place.settings.immediate:
        after_adding(place)
    return added


def _add_list(specs: Iterable[JobSpec], place: Place) -> list[Job]:
    # The code of an iterable may use the same connection, so it runs before the first statement.
    given = entries(prepared(list(specs), place), place)
    waiting = batches(given, max_keyed=LISTED_SPECS, max_characters=LISTED_CHARACTERS)
    first = list(islice(waiting, 2))
    if not first:
        return []
    with open_place(place) as queue:
        if len(first) == 1 and first[0].is_one_statement:
            return stamped(queue, add_batch(queue.cursor, first[0], schema=queue.schema, notify=queue.notify))
        jobs: list[Job] = []
        with transaction.atomic(using=queue.alias):
            for batch in chain(first, waiting):
                jobs += add_batch(queue.cursor, batch, schema=queue.schema, notify=queue.notify)
            return stamped(queue, jobs)


def _add_stream(specs: Iterable[JobSpec], place: Place) -> int:
    """Add the specs, and return their number. No statement runs while code of the iterable or of a payload runs."""
    given = entries(prepared_stream(specs, place), place)
    count = 0
    with open_place(place) as queue, transaction.atomic(using=queue.alias):
        for batch in batches(given, max_keyed=STREAMED_SPECS, max_characters=STREAMED_CHARACTERS):
            add_batch_blindly(queue.cursor, batch, schema=queue.schema, notify=queue.notify)
            count += len(batch.specs)
    return count


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
