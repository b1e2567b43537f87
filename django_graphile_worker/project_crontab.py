"""The recurring tasks of a project, collected from CRONTAB, CRONTAB_FILE and ``@task(cron=...)``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django_graphile_worker import conf, registry
from django_graphile_worker.crontab import CronItem, Draft
from django_graphile_worker.crontab.parser import PlacedItem
from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.job_options import OPTIONS, valid_job_key

# Options of tasks that their crontab items do not take over as they are: a job key is made for each payload, and for
# runs that overlap the crontab has a rule of its own.
NOT_TAKEN_OVER = frozenset({"job_key", "unique"})
MAX_CACHED = 100


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
    """Return whether there is any crontab, with or without mistakes. Most projects have none."""
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
    """Return all recurring tasks, or raise one CrontabError with every mistake in them."""
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
