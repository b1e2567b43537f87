"""Schedules of a shop with their last runs, for the screenshots and the browser tests."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from tests.support.factories import make_failed_job, make_job
from tests.support.schedule_rows import make_run, make_schedule

# The jobs of runs that ended have ids below those of the jobs that tests add.
FIRST_ENDED_JOB = 500_000

SUCCEEDED, FAILED = 1, 2


def fill(schema: str) -> None:
    """Create schedules in every state."""
    now = datetime.now(UTC)
    chance = random.Random(16)
    rates = make_schedule(
        "Exchange rates", "fetch_exchange_rates", interval="15 minutes", last_tick=now - timedelta(minutes=4)
    )
    for number in range(20):
        make_ended_run(
            schema, rates, number, minutes_ago=4 + 15 * (19 - number), seconds=chance.lognormvariate(-1, 0.6)
        )
    reviews = make_schedule(
        "Ask for reviews",
        "ask_for_review",
        cron="0 9 * * 1-5",
        time_zone="Europe/Berlin",
        description="For orders that were delivered a week ago.",
        overlap="skip",
        last_tick=now - timedelta(hours=3),
        last_job_id=(job := make_failed_job("ask_for_review", error="shop.mail.Refused: The server refused the mail.")),
    )
    for number in range(14):
        is_failed = number in (5, 12)
        make_ended_run(
            schema, reviews, 100 + number, minutes_ago=180 + 1440 * (14 - number),
            seconds=chance.lognormvariate(2, 0.4), status=FAILED if is_failed else SUCCEEDED,
        )  # fmt: skip
    make_run(reviews, kind="overlap", minutes_ago=200)
    make_run(reviews, minutes_ago=180, job_id=job)
    index = make_schedule(
        "Search index, complete", "refresh_search_index", cron="30 2 * * 0", time_zone="America/New_York",
        last_tick=now - timedelta(hours=30), last_missed_at=now - timedelta(hours=7),
    )  # fmt: skip
    make_ended_run(schema, index, 300, minutes_ago=1800, seconds=240.0)
    make_run(index, kind="missed", minutes_ago=420, number=3)
    running = make_job("refresh_search_index", {}, locked_by="django-worker-a3f9c1d20e87b", locked_at=now, attempts=1)
    make_run(index, kind="by_hand", minutes_ago=1, job_id=running, run_by="maria")
    make_schedule("Winter sale", "ask_for_review", run_at=now + timedelta(days=40), description="One mail to all.")
    make_schedule("Old newsletter", "print_newsletter", cron="0 12 1 * *")
    make_schedule("Stocktaking", "refresh_search_index", cron="0 22 * * 6", paused_until=now + timedelta(hours=50))
    make_schedule("Beta report", "ask_for_review", cron="*/5 * * * *", is_enabled=False)


def make_ended_run(
    schema: str,
    schedule_id: int | None,
    number: int,
    *,
    minutes_ago: float,
    seconds: float,
    status: int = SUCCEEDED,
    **values: Any,
) -> None:
    """Insert a run whose job has ended, and the record of its end."""
    job_id = FIRST_ENDED_JOB + number
    started = datetime.now(UTC) - timedelta(minutes=minutes_ago)
    ended = started + timedelta(seconds=seconds)
    attempt = {"started_at": started.timestamp(), "ended_at": ended.timestamp(), "worker_id": "w"}
    if status == FAILED:
        attempt["exception_class"] = "shop.mail.Refused"
    with connection.cursor() as cursor:
        cursor.execute(
            f'insert into "{schema}"._private_results (job_id, task_identifier, status, value, attempts, added_at,'
            " first_started_at, last_started_at, finished_at, expires_at)"
            " values (%s, 'task', %s, 'null', %s, %s, %s, %s, %s, now() + interval '1 day')",
            [job_id, status, json.dumps([attempt]), started, started, started, ended],
        )
    make_run(schedule_id, minutes_ago=minutes_ago, job_id=job_id, **values)
