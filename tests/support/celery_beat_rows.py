"""A project with 200 periodic tasks of django-celery-beat, of every kind that the package has."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
YEAR = timedelta(days=365)
NUMBER = 200
# Two changes each, in spring and in autumn, on both hemispheres.
ZONES = ("Europe/Berlin", "Australia/Sydney")
MINUTES = ("0", "30", "59", "5,35", "*/15", "*/7", "10-50/20", "45-15/10")
HOURS = ("*", "*", "2", "3", "9", "1,2,3", "*/2", "9-17", "22-4", "0,12")
PERIODS = (
    (10, "seconds"), (90, "minutes"), (1, "hours"), (5, "hours"), (1, "days"), (7, "days"), (5_000_000, "microseconds"),
)  # fmt: skip
DAYS = (
    *[("*", "*", "*")] * 6, ("*", "*", "mon-fri"), ("*", "*", "0"), ("*", "*", "fri-mon"), ("*", "*", "Monday,thu"),
    ("1", "*", "*"), ("28-31", "*", "*"), ("*/10", "*", "*"), ("1,15", "mar-nov", "*"), ("29", "2", "*"),
    ("*", "3,4,10,11", "*"), ("*", "nov-feb", "sat"),
)  # fmt: skip


def create_rows(models: Any) -> None:
    """Create 200 rows, always the same."""
    chance = random.Random(16)
    _create_crontabs(models, chance, 115)
    _create_intervals(models, chance, 40)
    _create_clocked(models, chance, 20)
    _create_unusual(models)
    # Beat counts intervals that never ran from the time of the last change.
    models.PeriodicTask.objects.update(date_changed=START)
    count = models.PeriodicTask.objects.count()
    assert count == NUMBER, count


def _create_crontabs(models: Any, chance: random.Random, number: int) -> None:
    for index in range(number):
        date, month, weekday = chance.choice(DAYS)
        crontab = models.CrontabSchedule.objects.create(
            minute=chance.choice(MINUTES),
            hour=chance.choice(HOURS),
            day_of_month=date,
            month_of_year=month,
            day_of_week=weekday,
            timezone=ZONES[index % 2],
        )
        more: dict[str, Any] = {}
        if index % 10 == 1:
            more = {"start_time": START + timedelta(days=40, hours=5), "expires": START + timedelta(days=300)}
        _create(models, f"crontab {index}", crontab=crontab, kwargs=json.dumps({"index": index}), **more)


def _create_intervals(models: Any, chance: random.Random, number: int) -> None:
    for index in range(number):
        every, period = chance.choice(
            [
                (10, "seconds"),
                (90, "minutes"),
                (1, "hours"),
                (5, "hours"),
                (1, "days"),
                (7, "days"),
                (5_000_000, "microseconds"),
            ]
        )
        interval = models.IntervalSchedule.objects.create(every=every, period=period)
        more: dict[str, Any] = {"last_run_at": START - timedelta(seconds=chance.randrange(0, 9))}
        if index % 5 == 1:
            more = {"last_run_at": None, "start_time": START + timedelta(days=40, minutes=7)}
        _create(models, f"interval {index}", interval=interval, **more)


def _create_clocked(models: Any, chance: random.Random, number: int) -> None:
    for index in range(number):
        time = START + timedelta(seconds=chance.randrange(1, int(YEAR.total_seconds())))
        clocked = models.ClockedSchedule.objects.create(clocked_time=time)
        _create(models, f"clocked {index}", clocked=clocked, one_off=True)


def _create_unusual(models: Any) -> None:
    daily = models.CrontabSchedule.objects.create(minute="0", hour="4", timezone="UTC")
    first_monday = models.CrontabSchedule.objects.create(
        minute="0", hour="4", day_of_month="1-7", day_of_week="mon", timezone="UTC"
    )
    hourly = models.IntervalSchedule.objects.create(every=1, period="hours")
    fast = models.IntervalSchedule.objects.create(every=500, period="microseconds")
    past = models.ClockedSchedule.objects.create(clocked_time=START - timedelta(days=1))
    sunrise = models.SolarSchedule.objects.create(event="sunrise", latitude=52.5, longitude=13.4)
    for index in range(8):
        _create(models, f"solar {index}", solar=sunrise)
    _create(models, "disabled", crontab=daily, enabled=False)
    _create(models, "first Monday", crontab=first_monday)
    _create(models, "too fast", interval=fast)
    _create(models, "past", clocked=past, one_off=True)
    _create(models, "celery.backend_cleanup", task="celery.backend_cleanup", crontab=daily)
    _create(models, "unknown task", task="proj.tasks.reprot", crontab=daily)
    _create(models, "renamed task", task="proj.tasks.send_old", crontab=daily, args="[5]")
    _create(models, "function name", task="proj.tasks.report", crontab=daily)
    _create(models, "positional", crontab=daily, args="[1, 2]")
    _create(models, "no JSON", crontab=daily, kwargs="{")
    _create(models, "once", crontab=daily, one_off=True)
    _create(models, "was once", interval=hourly, one_off=True, total_run_count=1)
    options = {"queue": "mail", "priority": 5, "headers": '{"x": 1}', "expire_seconds": 60, "routing_key": "r"}
    _create(models, "options", interval=hourly, description="With options.", **options)
    _create(models, "expired", crontab=daily, expires=START - timedelta(days=1))
    for index in range(3):
        _create(models, f"hourly {index}", interval=hourly)


def _create(models: Any, name: str, **values: Any) -> None:
    defaults = {"task": "beat_task", "last_run_at": START}
    # Not save(), which writes into another table as well, and sets the time of the last change.
    models.PeriodicTask.objects.bulk_create([models.PeriodicTask(name=name, **(defaults | values))])
