"""Recurring tasks: the items of a project, from CRONTAB, CRONTAB_FILE and ``@task(cron=...)``, and the jobs of ticks.

The job of a tick has what its schedule or item says, and where a schedule says nothing, what its task says.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Protocol

from django.utils import timezone

from django_graphile_worker import conf, registry, signals
from django_graphile_worker.crontab import CronItem, Draft, occurrences
from django_graphile_worker.crontab.items import flags_of_run
from django_graphile_worker.crontab.parser import PlacedItem
from django_graphile_worker.exceptions import ConfigurationError, InvalidTypeError
from django_graphile_worker.job_flags import RUNS_KEPT, schedule_flag
from django_graphile_worker.job_options import FLAG_OPTIONS, OPTIONS, flags_of_recurring, valid_job_key
from django_graphile_worker.jobs import JobSpec
from django_graphile_worker.payloads import encode
from django_graphile_worker.schedules.times import Definition, times_after
from django_graphile_worker.sql.schedules.firing import TickJob
from django_graphile_worker.sql.schedules.from_code import KnownCrontab

# Options of tasks that their crontab items do not take over as they are: a job key is made for each payload, and for
# runs that overlap the crontab has a rule of its own.
NOT_TAKEN_OVER = frozenset({"job_key", "unique"})
MAX_CACHED = 100
RECORD_OF_SINGLE_RUN = timedelta(days=30)
# An item is late if no worker has fired a tick for so long. Workers fire a tick within seconds.
GRACE = timedelta(minutes=2)
# At most this many items are checked.
MAX_CHECKED = 1_000
MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The texts, items and tasks from which the recurring tasks of one installation are read."""

    crontab: str | tuple[Any, ...]
    filename: str
    time_zone: str
    with_tasks: bool
    content: bytes | None
    tasks: tuple[registry.Task[Any, Any], ...]

    def replaces(self, other: Sources) -> bool:
        """Return whether these are the sources of the same settings, read at another time."""
        names = ("crontab", "filename", "time_zone", "with_tasks")
        return all(getattr(self, name) == getattr(other, name) for name in names)


# The last draft for each set of settings, with its sources. A process reads its crontab in its system checks and again
# when its worker starts; a crontab may have thousands of items, and every installation has its own crontab.
_cache: list[tuple[Sources, Draft]] = []


def is_any_written(settings: conf.Settings, *, with_tasks: bool = True) -> bool:
    """Return whether there is any crontab, with or without errors. Most projects have none."""
    beside_tasks = with_tasks and any(task.cron for task in registry.tasks)
    return bool(settings.crontab or settings.crontab_file or beside_tasks)


def draft_schedule(settings: conf.Settings, *, with_tasks: bool = True) -> Draft:
    """Return the items of CRONTAB, CRONTAB_FILE and ``@task(cron=...)``; raise OSError if the file cannot be read.

    The schedules of tasks belong to the installation "default": any other installation would fire them again.
    """
    file = settings.crontab_file
    content = None if file is None else file.read_bytes()
    tasks = tuple(registry.tasks) if with_tasks else ()
    sources = Sources(
        crontab=settings.crontab,
        filename=str(file),
        time_zone=settings.crontab_time_zone,
        with_tasks=with_tasks,
        content=content,
        tasks=tasks,
    )
    return (_cached(sources) or _read_and_cache(sources)).copy()


def _cached(sources: Sources) -> Draft | None:
    # A list, because a crontab may hold CronItems with values that cannot be hashed.
    return next((draft for known, draft in _cache if known == sources), None)


def _read_and_cache(sources: Sources) -> Draft:
    draft = _read(sources)
    kept = [entry for entry in _cache if not sources.replaces(entry[0])]
    _cache[:] = [*kept, (sources, draft)][-MAX_CACHED:]
    return draft


def _read(sources: Sources) -> Draft:
    draft = Draft()
    _add_setting(draft, sources.crontab)
    if sources.content is not None:
        _add_bytes(draft, sources.content, sources.filename)
    for task in sources.tasks:
        source = f"@task(cron=...) of {task.identifier}"
        draft.add_schedules(task.identifier, task.cron, source, partial(_with_defaults, draft, task, source))
    if sources.time_zone != "UTC":
        draft.placed = [_in_time_zone(placed, sources.time_zone) for placed in draft.placed]
    return draft


def _in_time_zone(placed: PlacedItem, zone: str) -> PlacedItem:
    """Return an item in the time zone of the setting, unless it has one of its own."""
    item = placed.item
    return placed if item.time_zone is not None else replace(placed, item=replace(item, time_zone=zone))


def collect(settings: conf.Settings | None = None, *, with_tasks: bool = True) -> tuple[CronItem, ...]:
    """Return all recurring tasks, or raise one CrontabError with every error in them."""
    settings = conf.current() if settings is None else settings
    if not is_any_written(settings, with_tasks=with_tasks):
        return ()
    try:
        draft = draft_schedule(settings, with_tasks=with_tasks)
    except OSError as error:
        raise ConfigurationError(
            f'{conf.SETTING}["CRONTAB_FILE"]: expected a file that can be read, '
            f"got {str(settings.crontab_file)!r}: {error.strerror or error}."
        ) from error
    draft.refuse_unknown_tasks(registry.tasks, registry.tasks.identifiers())
    items = draft.finish()
    if (most := settings.chosen_max_attempts) is None:
        return items
    return tuple(replace(item, max_attempts=most) if item.max_attempts is None else item for item in items)


def _add_setting(draft: Draft, crontab: str | tuple[Any, ...]) -> None:
    setting = f'{conf.SETTING}["CRONTAB"]'
    if isinstance(crontab, str):
        draft.add_text(crontab, setting)
        return
    for number, entry in enumerate(crontab, 1):
        if isinstance(entry, str):
            draft.add_text(entry, f"{setting} entry {number},")
        else:
            draft.add_item(entry, number, f"{setting} entry")


def _add_bytes(draft: Draft, content: bytes, source: str) -> None:
    try:
        draft.add_text(content.decode(), source)
    except UnicodeDecodeError as error:
        draft.add_mistake(source, "a crontab in UTF-8", f"{content[error.start : error.end]!r} at byte {error.start}")


def _with_defaults(draft: Draft, task: registry.Task[Any, Any], source: str, item: CronItem) -> CronItem:
    """Return the item with the defaults of the task: ``@task(cron=...)`` adds jobs as ``task.add_job()`` does."""
    names = [option.name for option in OPTIONS.values() if option.is_of_tasks and option.name not in NOT_TAKEN_OVER]
    values = {name: getattr(task.defaults, name) for name in names if getattr(item, name) is None}
    if item.job_key is None:
        values["job_key"] = _job_key(draft, task, source, item)
    return replace(item, **values)


def _job_key(draft: Draft, task: registry.Task[Any, Any], source: str, item: CronItem) -> str | None:
    payload = item.payload or {}
    try:
        return valid_job_key(task.defaults.job_key_for(payload))
    except Exception as error:  # job_key may be a function of the project, which may raise anything
        expected = f"a payload that job_key can make a key of ({error!r}), or ?jobKey="
        draft.add_mistake(source, expected, repr(payload))
        return None


class Scheduled(Protocol):
    """What a job takes from its schedule."""

    @property
    def id(self) -> int: ...
    @property
    def overlap(self) -> str: ...
    @property
    def queue_name(self) -> str | None: ...
    @property
    def priority(self) -> int | None: ...
    @property
    def max_attempts(self) -> int | None: ...
    @property
    def job_key(self) -> str | None: ...


def job_of(
    schedule: Scheduled,
    definition: Definition,
    task: registry.Task[Any, Any] | None,
    *,
    payload: str,
    at: datetime,
    is_late: bool = False,
) -> TickJob:
    """Return the job of a tick. ``payload`` is the payload as text of JSON."""
    defaults = None if task is None else task.defaults
    job_key = schedule.job_key
    if job_key is None and defaults is not None and defaults.job_key is not None:
        job_key = valid_job_key(defaults.job_key_for(json.loads(payload)))
    flags = () if defaults is None else (*(defaults.flags or ()), *flags_of_recurring(defaults, at))
    max_attempts = schedule.max_attempts or (None if defaults is None else defaults.max_attempts)
    return TickJob(
        at=at,
        is_late=is_late,
        queue_name=_queue_name(schedule, None if defaults is None else defaults.queue_name),
        # Schedules are of the installation "default".
        max_attempts=max_attempts or conf.current().chosen_max_attempts,
        job_key=job_key,
        job_key_mode=None if defaults is None else defaults.job_key_mode,
        priority=defaults.priority if schedule.priority is None and defaults is not None else schedule.priority,
        flags=(*flags, flag_of(schedule.id, definition, at)),
    )


def job_of_item(item: CronItem, *, at: datetime, is_late: bool = False) -> TickJob:
    """Return the job of a tick of an item of the crontab, which has all its options."""
    return TickJob(
        at=at,
        is_late=is_late,
        queue_name=item.queue_name,
        max_attempts=item.max_attempts,
        job_key=item.job_key,
        job_key_mode=item.job_key_mode,
        priority=item.priority,
        flags=tuple(flags_of_run(item, at)),
    )


def received(
    jobs: tuple[TickJob, ...],
    task: str,
    payload: str,
    *,
    database: str,
    installation: str = conf.DEFAULT,
    schedule: signals.FiringSchedule | None = None,
) -> tuple[TickJob, ...]:
    """Return the jobs of ticks as the receivers of ``pre_add_jobs`` leave them; raise what a receiver raises.

    ``payload`` is the payload of all of them, as text of JSON. Without ``schedule`` they are runs by hand.
    """
    if not signals.pre_add_jobs.is_heard():
        return jobs
    specs = [
        JobSpec(
            task,
            json.loads(payload),
            queue_name=job.queue_name,
            run_at=job.at,
            max_attempts=job.max_attempts,
            job_key=job.job_key,
            job_key_mode=job.job_key_mode,
            priority=job.priority,
            flags=job.flags,
        )
        for job in jobs
    ]
    specs = signals.received_specs(specs, database=database, installation=installation, schedule=schedule)
    return tuple(_as_left(job, spec, task, payload) for job, spec in zip(jobs, specs, strict=True))


def _as_left(job: TickJob, spec: JobSpec, task: str, payload: str) -> TickJob:
    is_payload_kept = spec.payload == json.loads(payload)
    if (spec.identifier, spec.run_at, spec.unique) != (task, job.at, None) or not (
        is_payload_kept or isinstance(spec.payload, dict)
    ):
        raise InvalidTypeError(
            "pre_add_jobs: a receiver changed the task or the time of the job of a schedule, made it unique, or "
            "replaced its payload by one that is no dict. It may change the other options."
        )
    given = ((option.flag, getattr(spec, option.name)) for option in FLAG_OPTIONS)
    added = [flag(value, job.at) for flag, value in given if flag is not None and value is not None]
    return job._replace(
        queue_name=spec.queue_name,
        max_attempts=spec.max_attempts,
        job_key=spec.job_key,
        job_key_mode=spec.job_key_mode,
        priority=spec.priority,
        flags=(*(spec.flags or ()), *added),
        payload=None if is_payload_kept else encode(spec.payload, max_size=conf.current().max_payload_size),
    )


def _queue_name(schedule: Scheduled, default: str | None) -> str | None:
    """Return the queue of a job. Jobs of a queue run one at a time."""
    if schedule.overlap == "queue":
        return schedule.queue_name or f"schedule:{schedule.id}"
    return schedule.queue_name or default


def flag_of(schedule_id: int, definition: Definition, at: datetime) -> str:
    """Return the flag by which a worker finds for how many seconds it records the outcome of a run."""
    return schedule_flag(schedule_id, _recorded_for(definition, at))


def _recorded_for(definition: Definition, at: datetime) -> timedelta:
    """Return for how long the outcome of a run is recorded: until so many later runs are there, within the limits."""
    if definition.interval is not None:
        return RUNS_KEPT * definition.interval
    if definition.cron is None:
        return RECORD_OF_SINGLE_RUN
    return _recorded_for_cron(definition.cron, definition.time_zone, at)


@lru_cache(maxsize=2_000)
def _recorded_for_cron(cron: str, time_zone: str, at: datetime) -> timedelta:
    # Thousands of schedules may have the same line, and fire at the same time.
    later = times_after(Definition(cron=cron, time_zone=time_zone), at)
    return max(itertools.islice(later, RUNS_KEPT), default=at) - at


def due_since(item: CronItem, known: KnownCrontab | None, now: datetime) -> datetime | None:
    """Return the first tick of the item that was not fired in time; None for an item that is on time.

    An item that a function of the project decides about is never late: the function would be called for each minute.
    """
    if known is None or known.is_paused or not isinstance(item.match, str):
        return None
    # A new item, and an item that was resumed, has no ticks before it became known.
    before_it_was_known = known.known_since - MOMENT
    after = max(known.last_execution or before_it_was_known, before_it_was_known)
    until = _aware(now) - GRACE
    return next(iter(occurrences(item, after, until)), None) if after < until else None


def late_items(
    items: Iterable[CronItem], known: Mapping[str, KnownCrontab], now: datetime
) -> list[tuple[CronItem, float]]:
    """Return the late items, the longest late first, each with the seconds since it was due."""
    found = [(item, due_since(item, known.get(item.name), now)) for item in list(items)[:MAX_CHECKED]]
    late = [(item, (_aware(now) - due).total_seconds()) for item, due in found if due is not None]
    return sorted(late, key=lambda pair: -pair[1])


def _aware(now: datetime) -> datetime:
    return timezone.make_aware(now).astimezone(UTC) if timezone.is_naive(now) else now
