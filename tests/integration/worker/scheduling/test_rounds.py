"""Rounds: which ticks of schedules get jobs, and what is noted about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from django_graphile_worker import signals
from django_graphile_worker.jobs import JobDefaults, JobSpec
from django_graphile_worker.registry import Task
from django_graphile_worker.sql.schedules.changes import FOREVER
from tests.conftest import RawConnection
from tests.support.schedule_world import MINUTE, NOON, SECOND, ScheduleWorld, registry_of


@pytest.fixture
def world(raw_connection: Callable[..., RawConnection], worker_schema: str) -> ScheduleWorld:
    return ScheduleWorld(raw_connection, worker_schema, NOON + 30 * SECOND)


def test_a_cron_line_fires_at_its_next_minute(world: ScheduleWorld) -> None:
    world.add("nightly", cron="* * * * *", payload={"tenant": 7})
    scheduler, _ = world.worker(clock=lambda: 0.0)
    assert world.settle(scheduler) == pytest.approx(30, abs=1)
    assert world.jobs() == []
    world.now = NOON + MINUTE
    assert world.settle(scheduler) == pytest.approx(60, abs=1)
    (job,) = world.jobs("nightly")
    assert (job["task"], job["run_at"]) == ("report", "2026-11-16T12:01:00+00:00")
    assert job["payload"] == {"tenant": 7, "_cron": {"ts": "2026-11-16T12:01:00.000Z", "backfilled": False}}
    assert world.runs("nightly") == [("on_time", "12:01:00", 1)]
    row = world.row("nightly")
    assert (row["last_tick"], row["last_job_id"]) == ("2026-11-16T12:01:00+00:00", job["id"])


def test_an_interval_fires_without_drift(world: ScheduleWorld) -> None:
    world.add("often", interval=timedelta(seconds=10))
    scheduler, _ = world.worker()
    for seconds in range(41):
        world.now = NOON + timedelta(seconds=30 + seconds, milliseconds=250 * (seconds % 3))
        world.settle(scheduler)
    assert world.ticks("often") == ["12:00:40", "12:00:50", "12:01:00", "12:01:10"]


def test_a_minute_in_which_nothing_is_due_costs_one_statement(world: ScheduleWorld) -> None:
    world.add("nightly", cron="0 4 * * *")
    scheduler, source = world.worker()
    scheduler.fire_due()
    source.statements.clear()
    for minute in range(5):
        world.now = NOON + minute * MINUTE
        assert scheduler.fire_due() > 60
    assert source.statements == ["/* gw:due-schedules "] * 5


def test_the_options_of_a_job_are_those_of_the_schedule_then_those_of_the_task(world: ScheduleWorld) -> None:
    registry = registry_of(
        "report", queue_name="reports", priority=4, max_attempts=5, flags=["slow"], job_key=lambda payload: payload["k"]
    )
    world.add("defaults", run_at=NOON + MINUTE, payload={"k": "a"})
    world.add("own", run_at=NOON + MINUTE, queue_name="q", priority=0, max_attempts=1, job_key="b", payload={"k": "a"})
    world.now = NOON + MINUTE
    world.settle(world.worker(registry=registry)[0])
    (defaults,), (own,) = world.jobs("defaults"), world.jobs("own")
    options = ("queue_name", "priority", "max_attempts", "key")
    assert [defaults[name] for name in options] == ["reports", 4, 5, "a"]
    assert [own[name] for name in options] == ["q", 0, 1, "b"]
    month = 30 * 86_400
    assert set(defaults["flags"]) == {"slow", f"schedule:{world.row('defaults')['id']}:{month}"}


def test_receivers_of_pre_add_jobs__see_the_jobs(world: ScheduleWorld) -> None:
    world.add("nightly", run_at=NOON + MINUTE, payload={"tenant": 7}, queue_name="q")
    world.add("refused", run_at=NOON + MINUTE, payload={"tenant": 8})
    seen: list[Any] = []

    def receive(specs: list[JobSpec], **kwargs: Any) -> None:
        seen.extend((spec.identifier, spec.run_at, spec.queue_name) for spec in specs)
        for index, spec in enumerate(specs):
            if spec.payload == {"tenant": 8}:
                raise PermissionError("no tenant")
            changed = replace(spec, priority=9, payload={**spec.payload, "more": 1})
            specs[index] = changed.with_headers({"tenant": "acme"})

    signals.pre_add_jobs.connect(receive)
    try:
        world.now = NOON + MINUTE
        world.settle(world.worker()[0])
    finally:
        signals.pre_add_jobs.disconnect(receive)
    assert seen == [("report", NOON + MINUTE, "q"), ("report", NOON + MINUTE, None)]
    (job,) = world.jobs("nightly")
    assert world.jobs("refused") == []
    assert 'headers:{"tenant":"acme"}' in job["flags"]
    assert (job["priority"], job["queue_name"]) == (9, "q")
    cron = {"ts": "2026-11-16T12:01:00.000Z", "backfilled": False}
    assert job["payload"] == {"tenant": 7, "more": 1, "_cron": cron}


def test_runs_that_must_not_overlap__wait_in_a_queue_of_their_own(world: ScheduleWorld) -> None:
    id_ = world.add("serial", interval=timedelta(seconds=10), overlap="queue")
    scheduler, _ = world.worker()
    for seconds in (0, 10, 20):
        world.now = NOON + timedelta(seconds=30 + seconds)
        world.settle(scheduler)
    assert [job["queue_name"] for job in world.jobs("serial")] == [f"schedule:{id_}"] * 2


def test_a_tick_while_the_last_run_is_not_over__is_skipped(world: ScheduleWorld) -> None:
    world.add("slow", interval=timedelta(seconds=10), overlap="skip")
    scheduler, _ = world.worker()
    for seconds in range(0, 41, 10):
        world.now = NOON + timedelta(seconds=30 + seconds)
        world.settle(scheduler)
    assert world.ticks("slow") == ["12:00:40"]
    assert world.runs("slow") == [("on_time", "12:00:40", 1), ("overlap", "12:01:10", 3)]
    skipped = [about for signal, about in world.signals if signal is signals.schedule_skipped]
    assert [about["ticks"] for about in skipped] == [(NOON + timedelta(seconds=s),) for s in (50, 60, 70)]
    world.execute("update :S._private_jobs set attempts = max_attempts")
    world.now += 10 * SECOND
    world.settle(scheduler)
    assert world.ticks("slow") == ["12:00:40", "12:01:20"], "a job that failed for good is over"
    world.execute("delete from :S._private_jobs")
    world.now += 10 * SECOND
    world.settle(scheduler)
    assert world.ticks("slow") == ["12:01:30"]


def outage(world: ScheduleWorld, **columns: Any) -> list[str]:
    """Return the ticks of a schedule each 20 minutes after an hour without workers, and then two more."""
    world.add("often", cron="*/20 * * * *", **columns)
    scheduler, _ = world.worker()
    scheduler.fire_due()
    world.now = NOON + timedelta(minutes=70)
    world.settle(scheduler)
    world.now = NOON + timedelta(minutes=80, seconds=59)
    world.settle(scheduler)
    return world.ticks("often")


def test_missed_ticks__are_skipped_and_counted(world: ScheduleWorld) -> None:
    assert outage(world) == ["13:20:00"]
    assert world.runs("often") == [("missed", "13:00:00", 3), ("on_time", "13:20:00", 1)]
    assert world.row("often")["last_missed_at"] == "2026-11-16T13:00:00+00:00"
    assert world.events() == [("schedule_missed", "often", 3)]
    (missed,) = [about for signal, about in world.signals if signal is signals.schedule_missed]
    assert (missed["number"], missed["first_tick"], missed["last_tick"]) == (
        3,
        NOON + 20 * MINUTE,
        NOON + 60 * MINUTE,
    )


def test_missed_ticks__are_made_up_once(world: ScheduleWorld) -> None:
    assert outage(world, missed="once") == ["13:00:00", "13:20:00"]
    assert world.runs("often") == [
        ("missed", "12:40:00", 2),
        ("late", "13:00:00", 1),
        ("on_time", "13:20:00", 1),
    ]
    assert [job["payload"]["_cron"]["backfilled"] for job in world.jobs("often")] == [True, False]


def test_missed_ticks__are_made_up_within_a_time(world: ScheduleWorld) -> None:
    assert outage(world, missed="all", missed_within=timedelta(minutes=30)) == ["12:40:00", "13:00:00", "13:20:00"]
    assert [run[0] for run in world.runs("often")] == ["missed", "late", "late", "on_time"]


def test_many_missed_ticks__are_made_up_in_order_and_only_the_latest_runs_are_kept(world: ScheduleWorld) -> None:
    world.add("often", interval=timedelta(seconds=1), missed="all", missed_within=timedelta(days=1))
    scheduler, _ = world.worker()
    scheduler.fire_due()
    world.now = NOON + timedelta(seconds=30 + 450)
    world.settle(scheduler)
    ticks = [job["payload"]["_cron"]["ts"] for job in world.jobs("often")]
    assert (len(ticks), ticks) == (450, sorted(set(ticks)))
    assert len(world.runs("often")) == 50


def test_a_clock_that_is_set_back_fires_no_tick_twice(world: ScheduleWorld) -> None:
    world.add("often", cron="* * * * *")
    scheduler, _ = world.worker()
    for minute in (0, 1, 2, 0, 1, 2, 3, -60, 3, 4):
        world.now = NOON + minute * MINUTE + SECOND
        world.settle(scheduler)
    assert world.ticks("often") == ["12:01:00", "12:02:00", "12:03:00", "12:04:00"]


def test_a_pause_ends_by_itself_and_what_was_due_in_it_is_not_fired(world: ScheduleWorld) -> None:
    world.add("often", cron="* * * * *", missed="all", missed_within=timedelta(days=1))
    scheduler, _ = world.worker()
    scheduler.fire_due()
    world.execute("update :S._private_schedules set paused_until = %s", NOON + 5 * MINUTE)
    for minute in range(1, 8):
        world.now = NOON + minute * MINUTE
        world.settle(scheduler)
    assert world.ticks("often") == ["12:05:00", "12:06:00", "12:07:00"]
    world.execute("update :S._private_schedules set paused_until = %s", FOREVER)
    world.now += timedelta(days=1)
    world.settle(scheduler)
    assert world.row("often")["next_at"] == "infinity"
    world.execute("update :S._private_schedules set paused_until = null")
    world.now += MINUTE
    world.settle(scheduler)
    assert len(world.ticks("often")) == 4


def test_a_disabled_schedule_and_one_that_has_ended_fire_nothing(world: ScheduleWorld) -> None:
    world.add("off", cron="* * * * *", is_enabled=False)
    world.add("window", cron="* * * * *", starts_at=NOON + 2 * MINUTE, ends_at=NOON + 4 * MINUTE)
    scheduler, _ = world.worker()
    for minute in range(1, 8):
        world.now = NOON + minute * MINUTE
        world.settle(scheduler)
    assert (world.ticks("off"), world.ticks("window")) == ([], ["12:02:00", "12:03:00"])


def test_a_schedule_of_an_unknown_task__is_left_to_others_for_a_minute(world: ScheduleWorld) -> None:
    stranger, _ = world.worker("report")
    stranger.fire_due()
    world.add("foreign", interval=timedelta(seconds=10), task="elsewhere", missed="once")
    for seconds in range(0, 61, 10):
        world.now = NOON + timedelta(seconds=30 + seconds)
        stranger.fire_due()
        stranger.fire_due()
    assert world.runs("foreign") == []
    friend, _ = world.worker("elsewhere")
    world.settle(friend)
    assert world.ticks("foreign") == ["12:01:30"], "the worker that knows the task fires it"
    heard = list(world.signals)
    for seconds in range(70, 201, 10):
        world.now = NOON + timedelta(seconds=30 + seconds)
        world.settle(stranger)
    assert world.ticks("foreign") == ["12:01:30"]
    assert world.runs("foreign")[-1] == ("unknown_task", "12:03:50", 14), "one row for all of them"
    assert (world.troubles, world.signals) == ([], heard), "without noise"


def test_schedules_that_cannot_be_fired_delay_no_others_and_are_reported_once(world: ScheduleWorld) -> None:
    def key(payload: Any) -> str:
        raise ValueError("no key")

    registry = registry_of("report")
    registry.register(Task(lambda payload: None, "keyed", defaults=JobDefaults(job_key=key)))
    world.add("typo", cron="every monday")
    world.add("nowhere", cron="* * * * *", time_zone="Mars/Olympus")
    world.add("keyless", cron="* * * * *", task="keyed")
    world.add("good", cron="* * * * *")
    scheduler, _ = world.worker(registry=registry)
    for minute in (0, 1, 2):
        world.now = NOON + minute * MINUTE
        assert world.settle(scheduler) <= 60
    assert world.ticks("good") == ["12:01:00", "12:02:00"]
    assert sorted(trouble.split(":")[0] for trouble in world.troubles) == [
        "schedule keyless",
        "schedule nowhere",
        "schedule typo",
    ]
    world.execute("update :S._private_schedules set cron = '* * * * *', time_zone = 'UTC' where name <> 'keyless'")
    world.settle(scheduler)
    world.now = NOON + 3 * MINUTE
    world.settle(scheduler)
    assert (world.ticks("typo"), world.ticks("nowhere")) == (["12:03:00"], ["12:03:00"])


def test_an_outage_at_any_statement__loses_no_tick_and_fires_none_twice(world: ScheduleWorld) -> None:
    world.add("often", cron="* * * * *")
    scheduler, source = world.worker()
    world.settle(scheduler)
    world.now = NOON + MINUTE
    for statement, after in ((1, False), (2, False), (2, True)):
        source.fail_at(statement, after=after)
        with pytest.raises(psycopg.OperationalError):
            scheduler.fire_due()
    world.settle(scheduler)
    assert world.ticks("often") == ["12:01:00"]
    (run,) = world.runs("often")
    assert run == ("on_time", "12:01:00", 1)


def test_many_schedules_are_fired_in_several_statements(world: ScheduleWorld) -> None:
    world.execute(
        "insert into :S._private_schedules (name, task, cron)"
        " select 'tenant ' || number, 'report', '* * * * *' from generate_series(1, 2500) as number"
    )
    first, second = world.worker()[0], world.worker()[0]
    world.settle(first)
    world.now = NOON + MINUTE
    assert (first.fire_due(), second.fire_due()) == (0, 0)
    assert world.settle(first) == pytest.approx(60, abs=5)
    assert world.execute("select count(*), count(distinct flags) from :S._private_jobs") == [(2500, 2500)]
