"""The items of the crontab of this site, for the pages that show them."""

from __future__ import annotations

from django_graphile_worker import recurring
from django_graphile_worker.crontab import CronItem
from django_graphile_worker.exceptions import CrontabError, GraphileWorkerError


def read_crontab() -> tuple[tuple[CronItem, ...], list[str]]:
    """Return the items and no mistakes, or no items and the mistakes."""
    try:
        return recurring.collect(), []
    except CrontabError as error:
        return (), [str(mistake) for mistake in error.mistakes]
    except GraphileWorkerError as error:
        return (), [str(error)]
