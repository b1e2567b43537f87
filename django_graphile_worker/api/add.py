"""Adds jobs: a single job, or many.

``add_job()`` and ``add_jobs()`` come first, then the checks of what is to be added: payloads, times and names of tasks,
and at the end what changes in a test that moves the clock or runs jobs at once.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any, Literal, Never, Unpack, cast, overload

from asgiref.sync import sync_to_async
from django.db import transaction
from django.utils import timezone

from django_graphile_worker import registry, signals, simulation
from django_graphile_worker.api.connection import QueueConnection, async_variant, aware, open_place
from django_graphile_worker.exceptions import InvalidTypeError, PayloadError, UnknownTaskError
from django_graphile_worker.job_options import FLAG_OPTIONS, JobOption, SpecOptions
from django_graphile_worker.jobs import Job, JobSpec, TaskLike, too_many_arguments
from django_graphile_worker.limits import refuse_unkeyed
from django_graphile_worker.payloads import encode
from django_graphile_worker.routing import Place, place_of
from django_graphile_worker.sql import jobs as sql_jobs
from django_graphile_worker.sql.adding import Entry, add_batch, add_batch_blindly, batches
from django_graphile_worker.sql.adding import add_job as add_one
from django_graphile_worker.text import did_you_mean

logger = logging.getLogger("django_graphile_worker.jobs")

# The limits of each statement of a list: PostgreSQL takes a value of up to a gigabyte.
LISTED_SPECS, LISTED_CHARACTERS = 1_000_000, 128 * 1024 * 1024
# The limits of each statement of a stream: large enough to be fast, small enough for the memory of the process.
STREAMED_SPECS, STREAMED_CHARACTERS = 20_000, 4 * 1024 * 1024
# How many specs of a stream the receivers of ``pre_add_jobs`` get at a time.
RECEIVED_SPECS = 100

# Task identifiers that this project does not have; each is logged once.
logged_names: set[str] = set()
MAX_LOGGED_NAMES = 1_000


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
    call: Any = sync_to_async(add_jobs, thread_sensitive=True)
    added: list[Job] | int = await call(specs, using=using, installation=installation, returning=returning)
    return added


def prepared(specs: list[JobSpec], place: Place) -> list[JobSpec]:
    """Return the specs as the receivers of ``pre_add_jobs`` leave them, with the MAX_ATTEMPTS of the settings."""
    specs = signals.received_specs(specs, database=place.using, installation=place.installation)
    most = place.settings.chosen_max_attempts
    if most is None:
        return specs
    return [_with_max_attempts(spec, most) for spec in specs]


def _with_max_attempts(spec: Any, most: int) -> Any:
    # Whatever is no spec is refused later, with its place.
    is_left_out = isinstance(spec, JobSpec) and spec.max_attempts is None
    return dataclasses.replace(spec, max_attempts=most) if is_left_out else spec


def prepared_stream(specs: Iterable[JobSpec], place: Place) -> Iterator[JobSpec]:
    """Return the specs as ``prepared()`` does, however many there are.

    Only a few are in memory: no more than one if nobody receives ``pre_add_jobs``.
    """
    remaining = iter(specs)
    while some := list(islice(remaining, RECEIVED_SPECS if signals.pre_add_jobs.is_heard() else 1)):
        yield from prepared(some, place)


def entries(specs: Iterable[JobSpec], place: Place) -> Iterator[Entry]:
    """Return the specs with their payloads; an error names the place of the spec."""
    for index, spec in enumerate(specs):
        if not isinstance(spec, JobSpec):
            raise InvalidTypeError(f"specs[{index}]: expected a JobSpec, got {type(spec).__name__}.")
        try:
            entry = entry_of(spec, place)
        except PayloadError as error:
            raise PayloadError(f"specs[{index}]: {error}", path=error.path) from error.__cause__
        yield entry


def entry_of(spec: JobSpec, place: Place) -> Entry:
    """Return a spec as it is added, with its payload as JSON; raise for a payload that cannot be stored."""
    if spec.identifier not in registry.tasks:
        _note_unknown_name(spec.identifier, place)
    if simulation.now is not None:
        spec = dataclasses.replace(spec, run_at=simulation.moved(aware(spec.run_at)) or simulation.now())
    elif isinstance(spec.run_at, datetime):
        run_at = aware(spec.run_at)
        if run_at is not spec.run_at:
            spec = dataclasses.replace(spec, run_at=run_at)
    stored_as_flags = [option for option in FLAG_OPTIONS if getattr(spec, option.name) is not None]
    if stored_as_flags:
        spec = _with_flags(spec, stored_as_flags)
    text = "{}" if spec.payload is None else encode(spec.payload, max_size=place.settings.max_payload_size)
    if registry.tasks.has_limits:
        _refuse_unkeyed(spec.identifier, text)
    return spec, text


def _refuse_unkeyed(identifier: str, payload_text: str) -> None:
    task = registry.tasks.get(identifier)
    if task is None or not task.limits:
        return
    refuse_unkeyed(task, payload_text)


def _with_flags(spec: JobSpec, options: Sequence[JobOption]) -> JobSpec:
    """Return the spec with flags in place of these options."""
    now = datetime.now(UTC) if simulation.now is None else simulation.now()
    run_at = _in_zone(spec.run_at) if isinstance(spec.run_at, datetime) else now + (spec.run_at or timedelta(0))
    flags = list(spec.flags or ())
    for option in options:
        value = getattr(spec, option.name)
        if isinstance(value, datetime):
            value = _in_zone(aware(value, name=option.name))
        assert option.flag is not None
        flags.append(option.flag(value, run_at))
    stored: dict[str, Any] = {option.name: None for option in options}
    return dataclasses.replace(spec, **stored, flags=tuple(flags))


def _in_zone(moment: Any) -> datetime:
    """Return a time with its zone: without USE_TZ, times are naive and in the zone of the site."""
    aware_moment = timezone.make_aware(moment, timezone.get_default_timezone()) if timezone.is_naive(moment) else moment
    return cast("datetime", aware_moment)


def _note_unknown_name(name: str, place: Place) -> None:
    if simulation.is_immediate or place.settings.immediate:
        refuse_unknown_task(name)
    if name not in logged_names and len(logged_names) < MAX_LOGGED_NAMES:
        _log_unknown_name(name)


def _log_unknown_name(name: str) -> None:
    """Log a task identifier that may be mistyped. It may also be a task that the worker of another project has."""
    logged_names.add(name)
    hint = did_you_mean(name, registry.tasks.identifiers())
    logger.warning(
        "job added for %r, a task that this project does not have: it waits for a worker that has it.%s",
        name,
        f" {hint}" if hint else "",
        extra={"task_identifier": name},
    )


def stamped(queue: QueueConnection, jobs: Sequence[Job]) -> list[Job]:
    """Return added jobs with the time of the test's clock as the time at which they were added, also in the database.

    Without a clock of a test, return them as they are.
    """
    if simulation.now is None:
        return list(jobs)
    new = [job.id for job in jobs if not job.existed]
    times = sql_jobs.stamp(queue.cursor, new, simulation.now(), schema=queue.schema)
    return [
        dataclasses.replace(job, created_at=times[job.id][0], updated_at=times[job.id][1]) if job.id in times else job
        for job in jobs
    ]


def refuse_unknown_task(name: str) -> Never:
    """Raise UnknownTaskError: in immediate mode a job runs in this process, and no other worker can have its task."""
    hint = did_you_mean(name, registry.tasks.identifiers())
    raise UnknownTaskError(
        f"add_job() in immediate mode: this project has no task {name!r}."
        f"{f' {hint}' if hint else ' Register it with @task, in a module tasks.py of an installed app.'}"
    )


def after_adding(place: Place) -> None:
    """Run the jobs of immediate mode when the transaction that added them has ended."""
    # Late import: production does not use the immediate mode, and the layers forbid the import at the top.
    from django_graphile_worker.testing.immediate_mode import run_after_transaction

    run_after_transaction(place)
