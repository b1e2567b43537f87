"""The recurring tasks of a project, from all places where they may be written."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from django_graphile_worker import conf, registry
from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.jobs import valid_job_key

if TYPE_CHECKING:
    from django_graphile_worker.crontab import CronItem, Draft

DEFAULTS = ("queue_name", "max_attempts", "priority", "flags", "job_key_mode")


class Written(NamedTuple):
    """Everything that a project's recurring tasks are read from."""

    crontab: str | tuple[Any, ...]
    filename: str
    content: bytes | None
    tasks: tuple[registry.Task[Any, Any], ...]


# What was read last, and what it was read from: a process that starts asks for it in its checks and when it begins, and
# a crontab may have thousands of items.
_read_before: list[tuple[Written, Draft]] = []


def is_any_written(settings: conf.Settings, *, with_tasks: bool = True) -> bool:
    """Is there any crontab at all, right or wrong? Most projects have none."""
    beside_tasks = with_tasks and any(task.cron for task in registry.tasks)
    return bool(settings.crontab or settings.crontab_file or beside_tasks)


def draft_schedule(settings: conf.Settings, *, with_tasks: bool = True) -> Draft:
    """Everything written in CRONTAB, in CRONTAB_FILE and beside tasks; raises OSError for the file.

    What is written beside tasks belongs to the installation "default": several would fire it once each.
    """
    file = settings.crontab_file
    content = None if file is None else file.read_bytes()
    written = Written(settings.crontab, str(file), content, tuple(registry.tasks) if with_tasks else ())
    if not _read_before or _read_before[0][0] != written:
        _read_before[:] = [(written, _read(written))]
    return _read_before[0][1].copy()


def _read(written: Written) -> Draft:
    # Here, as a worker without a crontab need not read its parser: 12 ms.
    from django_graphile_worker.crontab import Draft

    draft = Draft()
    _add_setting(draft, written.crontab)
    if written.content is not None:
        _add_bytes(draft, written.content, written.filename)
    for task in written.tasks:
        source = f"@task(cron=...) of {task.identifier}"
        draft.add_schedules(task.identifier, task.cron, source, partial(_with_defaults, draft, task, source))
    return draft


def collect(settings: conf.Settings | None = None, *, with_tasks: bool = True) -> tuple[CronItem, ...]:
    """All recurring tasks, or one CrontabError with every mistake in them."""
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
    return draft.finish()


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
        draft.note(source, "a crontab in UTF-8", f"{content[error.start : error.end]!r} at byte {error.start}")


def _with_defaults(draft: Draft, task: registry.Task[Any, Any], source: str, item: CronItem) -> CronItem:
    """A schedule beside a task adds jobs as ``task.add_job`` does: with the task's own defaults."""
    values = {name: getattr(task.defaults, name) for name in DEFAULTS if getattr(item, name) is None}
    if item.job_key is None:
        values["job_key"] = _job_key(draft, task, source, item)
    return replace(item, **values)


def _job_key(draft: Draft, task: registry.Task[Any, Any], source: str, item: CronItem) -> str | None:
    payload = item.payload or {}
    try:
        return valid_job_key(task.defaults.job_key_for(payload))
    except Exception as error:  # a task's job_key may be a function of the user's
        draft.note(source, f"a payload that job_key can make a key of ({error!r}), or ?jobKey=", repr(payload))
        return None
