"""Recurring tasks beside the real graphile-worker: a crontab has the same meaning, and ticks fire once for both."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from django_graphile_worker.crontab import CronItem, parse_crontab
from django_graphile_worker.crontab.patterns import parse_pattern
from django_graphile_worker.exceptions import CrontabError
from tests.migration.conftest import Site
from tests.node.conftest import NodeWorker
from tests.node.runtime import Node
from tests.support.scheduling import FlakySource, build_scheduler
from tests.support.worker_sql import WorkerSql

CRONTAB = "* * * * * tick ?fill=1h {text: 'ü'}"
ACCEPTED = [
    "* * * * * task",
    "*/7 */5 */10 */5 */2 task",
    "0,30 4-6 1,15 * * task",
    "0 0 13 * 5 task",
    "0 0 */10 * 1-5 task",
    "5 4 1-31 * 1 task",
    "5 4 10 * 0-6 task",
    "0 0 * * 7 task",
    "0 0 * * 5-7 task",
    "*/99 05 * * * a_b:c/d-e",
    "30 4 * * 1 weekly ?fill=4w3d2h1m&max=10 {onboarding:false}",
    "0 0 * * * task ?id=a-b&queue=x:y_z&jobKey=a%26b+c&jobKeyMode=preserve_run_at&priority=-3 {a: [1, .5, 0x10,],}",
    '0 0 * * * task {"text": "# not a comment"}',
    "  0   0\t* * *   task   ",
]
REFUSED = [
    "60 * * * * task",
    "* 24 * * * task",
    "* * 0 * * task",
    "* * * 13 * task",
    "* * * * 8 task",
    "5-5 * * * * task",
    "5-3 * * * * task",
    "*/0 * * * * task",
    "1,, * * * * task",
    "* * * * task",
    "* * * * * * task",
    "* * * * * 9task",
    "* * * * * a.b",
    "* * * * * task [1]",
    "* * * * * task {} x",
    "* * * * * task {a:}",
    "* * * * * task ?",
    "* * * * * task ?unknown=1",
    "* * * * * task ?id=a&id=b",
    "* * * * * task ?id=1x",
    "* * * * * task ?fill=5",
    "* * * * * task ?max=-1",
    "* * * * * task ?queue=a.b",
    "* * * * * task ?jobKeyMode=unsafe_dedupe",
    "* * * * * task ?priority=1.5",
    "* * * * * task # comment",
    "* * * * * task\n0 0 * * * task",
]


def digest(moment: datetime) -> dict[str, int]:
    return {
        "min": moment.minute,
        "hour": moment.hour,
        "date": moment.day,
        "month": moment.month,
        "dow": moment.isoweekday() % 7,
    }


def read_by_node(node_runtime: Node, lines: list[str], moments: list[datetime]) -> list[dict[str, Any]]:
    request = json.dumps({"lines": lines, "minutes": [digest(moment) for moment in moments]})
    output, errors = node_runtime.start("crontab.mjs").communicate(request, timeout=60)
    assert not errors, errors
    return [json.loads(line) for line in output.splitlines()]


def test_crontab__means_the_same_to_both(node_runtime: Node) -> None:
    chance = random.Random(4)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    moments = [start + timedelta(minutes=chance.randrange(0, 366 * 24 * 60)) for _ in range(3000)]
    # At midnight the day changes, on which patterns with days depend.
    moments += [start + timedelta(days=day) for day in range(366)]
    for theirs in read_by_node(node_runtime, ACCEPTED, moments):
        [ours] = parse_crontab(theirs["line"])
        pattern = parse_pattern(str(ours.match))
        assert theirs["matches"] == [pattern.matches(moment) for moment in moments], theirs["line"]
        assert (ours.task, ours.name) == (theirs["task"], theirs["identifier"])
        assert (ours.payload or {}) == (theirs["payload"] or {})
        assert options_of(ours) == {name: value for name, value in theirs["options"].items() if value is not None}


def options_of(item: CronItem) -> dict[str, Any]:
    options = {
        "backfillPeriod": int(item.period.total_seconds() * 1000),
        "maxAttempts": item.max_attempts,
        "queueName": item.queue_name,
        "jobKey": item.job_key,
        "jobKeyMode": item.job_key_mode,
        "priority": item.priority,
    }
    return {name: value for name, value in options.items() if value is not None}


def test_invalid_crontab__is_refused_by_both(node_runtime: Node) -> None:
    for theirs in read_by_node(node_runtime, REFUSED, []):
        assert "error" in theirs, theirs
        with pytest.raises(CrontabError):
            parse_crontab(theirs["line"])


def backfill_ours(site: Site) -> None:
    with psycopg.connect(site.url, autocommit=True) as connection:
        scheduler = build_scheduler(
            FlakySource(connection),
            schema=site.schema,
            items=parse_crontab(CRONTAB),
            now=lambda: None,
            send=lambda signal, **about: None,
            on_trouble=lambda action, error, retry_in: None,
        )
        for _ in range(5):
            scheduler.step()


@pytest.mark.parametrize("is_ours_first", [True, False])
def test_backfilled_ticks__are_not_backfilled_again_by_the_other(
    site: Site, node_worker: NodeWorker, worker: WorkerSql, is_ours_first: bool
) -> None:
    site.migrate()

    turns: list[Callable[[], object]] = [
        lambda: backfill_ours(site),
        lambda: node_worker.node.run("cron.mjs", site.url, site.schema, CRONTAB),
    ]
    if not is_ours_first:
        turns.reverse()
    turns[0]()
    # A minute may have begun.
    worker.query("delete from {schema}._private_jobs returning id")
    # No worker ran for ten minutes: both would backfill the ticks.
    worker.query(
        "update {schema}._private_known_crontabs set known_since = now() - interval '1 day',"
        " last_execution = date_trunc('minute', now()) - interval '10 minutes' returning identifier"
    )
    turns[0]()
    made_up = len(worker.query("select id from {schema}._private_jobs"))
    turns[1]()
    rows = worker.query("select payload, run_at from {schema}._private_jobs as job order by run_at, id")
    stamps = [datetime.fromisoformat(row["payload"]["_cron"]["ts"]) for row in rows]
    assert made_up >= 10
    assert stamps == [row["run_at"] for row in rows]
    assert stamps == [stamps[0] + timedelta(minutes=count) for count in range(len(stamps))]
    # Only minutes that began meanwhile may be new.
    assert len(stamps) - made_up <= 2
    assert all(row["payload"]["text"] == "ü" and row["payload"]["_cron"].keys() == {"ts", "backfilled"} for row in rows)
