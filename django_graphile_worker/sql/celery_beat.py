"""Reads the tables of django-celery-beat, on any database that Django supports."""

from __future__ import annotations

from typing import Any

# The tables of the package are wherever the project's other tables are.
PERIODIC_TASKS = "/* gw:celery-beat-tasks */ select * from django_celery_beat_periodictask order by name"
SCHEDULES = {
    "crontab": "/* gw:celery-beat-crontabs */ select * from django_celery_beat_crontabschedule",
    "interval": "/* gw:celery-beat-intervals */ select * from django_celery_beat_intervalschedule",
    "clocked": "/* gw:celery-beat-clocked */ select * from django_celery_beat_clockedschedule",
    "solar": "/* gw:celery-beat-solar */ select * from django_celery_beat_solarschedule",
}
TABLES = {
    "crontab": "django_celery_beat_crontabschedule",
    "interval": "django_celery_beat_intervalschedule",
    "clocked": "django_celery_beat_clockedschedule",
    "solar": "django_celery_beat_solarschedule",
}
TABLE = "django_celery_beat_periodictask"


def periodic_tasks(cursor: Any) -> list[dict[str, Any]]:
    """Return the rows of ``PeriodicTask``, in the order of their names."""
    return _rows(cursor, PERIODIC_TASKS)


def schedules_of(cursor: Any, kind: str) -> dict[int, dict[str, Any]]:
    """Return the schedules of a kind by their ids."""
    return {row["id"]: row for row in _rows(cursor, SCHEDULES[kind])}


def _rows(cursor: Any, statement: str) -> list[dict[str, Any]]:
    """Return all columns: older versions of the package have fewer."""
    cursor.execute(statement)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
