"""The real django-celery-beat: its tables in the database of a test, and its scheduler in simulated time."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock
from zoneinfo import ZoneInfo

from django.contrib import admin
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.test.utils import modify_settings

APP = "django_celery_beat"
REASON = "django-celery-beat is not installed (pip install --group celery-beat, for Django before 6.1)"
# Beat reads its tables again after this time, and checks every entry then.
SYNC = timedelta(minutes=5)
SECOND = timedelta(seconds=1)
NEAR = timedelta(hours=4)


@contextmanager
def installed(unblock: Callable[[], AbstractContextManager[None]]) -> Iterator[Any]:
    """Install the package and its tables for a block; return its models. ``unblock`` allows to use the database."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with modify_settings(INSTALLED_APPS={"append": [APP]}):
            with unblock():
                executor = MigrationExecutor(connection)
                executor.migrate([node for node in executor.loader.graph.leaf_nodes() if node[0] == APP])
            try:
                yield importlib.import_module(f"{APP}.models")
            finally:
                _unregister_pages()
                with unblock():
                    _drop_tables()


def _unregister_pages() -> None:
    """Remove the pages of the package from the admin, whose index would look for the package."""
    for model in [each for each in admin.site._registry if each._meta.app_label == APP]:
        admin.site.unregister(model)


def _drop_tables() -> None:
    with connection.cursor() as cursor:
        for name in connection.introspection.table_names(cursor):
            if name.startswith(f"{APP}_"):
                cursor.execute(f"drop table {name} cascade")
        cursor.execute("delete from django_migrations where app = %s", [APP])


class Clock:
    """The time of beat. While it is set, every module of beat and Celery that reads a clock reads this one."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    @contextmanager
    def set(self) -> Iterator[Clock]:
        clock = self

        class SimulatedTime(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return clock.now.astimezone(tz) if tz else clock.now.replace(tzinfo=None)

        def now() -> datetime:
            return clock.now

        module = SimpleNamespace(datetime=SimulatedTime, timedelta=timedelta)
        with (
            mock.patch(f"{APP}.schedulers.datetime", module),
            mock.patch(f"{APP}.tzcrontab.datetime", SimulatedTime),
            mock.patch("celery.app.base.datetime", SimulatedTime),
            mock.patch("celery.schedules.datetime", SimulatedTime),
            mock.patch("celery.utils.time.datetime", SimulatedTime),
            mock.patch("django.utils.timezone.now", now),
        ):
            yield self


def fire_times(task: Any, after: datetime, until: datetime, *, most: int = 1_000_000) -> list[datetime]:
    """Return the times in (after, until] at which beat fires a periodic task that it has loaded at ``after``.

    Beat asks its entry at the time that the entry has estimated. Near time changes, where an estimate could be wrong,
    it is asked every five minutes as well: then beat reads its tables and asks all entries.
    """
    schedulers = importlib.import_module(f"{APP}.schedulers")
    changes = time_changes(zone_of(task), after - NEAR, until + NEAR)
    found: list[datetime] = []
    clock = Clock(after)
    with clock.set(), mock.patch.object(schedulers.ModelEntry, "_disable"), mock.patch.object(type(task), "save"):
        entry = schedulers.ModelEntry(task)
        while clock.now <= until and len(found) < most:
            is_due, seconds = entry.is_due()
            if is_due and clock.now > after:
                found.append(clock.now)
                entry = next(entry)
            clock.now += min(max(timedelta(seconds=seconds), SECOND), _until_asked(clock.now, changes))
    return [time for time in found if time <= until]


def zone_of(task: Any) -> ZoneInfo:
    return ZoneInfo(str(task.crontab.timezone)) if task.crontab else ZoneInfo("UTC")


def _until_asked(now: datetime, changes: list[datetime]) -> timedelta:
    """Return the time until beat asks an entry whatever it has estimated."""
    if any(abs(now - change) < NEAR for change in changes):
        return SYNC - (now - datetime(2000, 1, 1, tzinfo=UTC)) % SYNC
    starts = [change - NEAR - now for change in changes if change - NEAR > now]
    return min(starts, default=timedelta(days=400)) + SECOND


@cache
def time_changes(zone: ZoneInfo, after: datetime, until: datetime) -> list[datetime]:
    """Return the hours at which the offset of a zone changes."""
    found, moment = [], after.replace(minute=0, second=0, microsecond=0)
    while moment <= until:
        step = timedelta(days=1)
        if moment.astimezone(zone).utcoffset() != (moment + step).astimezone(zone).utcoffset():
            while moment.astimezone(zone).utcoffset() == (moment + timedelta(hours=1)).astimezone(zone).utcoffset():
                moment += timedelta(hours=1)
            found.append(moment + timedelta(hours=1))
        moment += step
    return found
