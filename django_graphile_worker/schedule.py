"""The recurring tasks of a project, from all places where they may be written."""

from __future__ import annotations

from django_graphile_worker import conf, registry
from django_graphile_worker.crontab import CronItem, Draft
from django_graphile_worker.exceptions import ConfigurationError


def draft_schedule(settings: conf.Settings) -> Draft:
    """Everything written in CRONTAB, in CRONTAB_FILE and beside tasks; raises OSError for the file."""
    draft = Draft()
    entries = (settings.crontab,) if isinstance(settings.crontab, str) else settings.crontab
    for number, entry in enumerate(entries, 1):
        if isinstance(entry, str):
            draft.add_text(entry, f'{conf.SETTING}["CRONTAB"]')
        else:
            draft.add_item(entry, number)
    if settings.crontab_file is not None:
        draft.add_text(settings.crontab_file.read_text(encoding="utf-8"), str(settings.crontab_file))
    for task in registry.tasks:
        draft.add_schedules(task.identifier, task.cron, f"@task(cron=...) of {task.identifier}")
    return draft


def scheduled_items(settings: conf.Settings) -> tuple[CronItem, ...]:
    """All recurring tasks, or one CrontabError with every mistake in them."""
    try:
        draft = draft_schedule(settings)
    except OSError as error:
        raise ConfigurationError(
            f'{conf.SETTING}["CRONTAB_FILE"]: expected a file that can be read, '
            f"got {str(settings.crontab_file)!r}: {error.strerror or error}."
        ) from error
    draft.refuse_unknown_tasks(registry.tasks, registry.tasks.identifiers())
    return draft.finish()
