"""Items of the crontab and schedules in one scheduler: neither costs the other anything, nor keeps it from firing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.sql.schedules import from_code
from django_graphile_worker.worker.scheduling import scheduler as module
from django_graphile_worker.worker.scheduling.scheduler import Scheduler
from tests.conftest import RawConnection
from tests.support.cron_world import CronWorld
from tests.support.schedule_world import MINUTE, NOON, SECOND, ScheduleWorld, registry_of

# What a trigger of a project may raise for the jobs of one task. The same errors mostly concern all jobs.
REFUSALS = {
    "no table": "insert into audit_table_that_is_gone values (1)",
    "no function": "perform audit_function_that_is_gone()",
    "no right": "raise insufficient_privilege",
    "internal": "raise internal_error",
    "other": "raise exception 'no'",
}


@pytest.fixture
def schedules(raw_connection: Callable[..., RawConnection], worker_schema: str) -> ScheduleWorld:
    return ScheduleWorld(raw_connection, worker_schema, NOON + 30 * SECOND)


@pytest.fixture
def items(raw_connection: Callable[..., RawConnection], worker_schema: str) -> CronWorld:
    return CronWorld(raw_connection, worker_schema, NOON + 30 * SECOND)


@pytest.fixture(params=REFUSALS)
def refusal(
    request: pytest.FixtureRequest, raw_connection: Callable[..., RawConnection], worker_schema: str
) -> Iterator[None]:
    """A trigger that refuses some jobs."""
    connection = raw_connection()
    connection.execute(
        f"""create function public.refuse_job() returns trigger language plpgsql as $$ begin
            if new.payload ->> 'is_refused' is not null then {REFUSALS[request.param]}; end if;
            return new;
        end $$;
        create trigger refuse_job before insert on "{worker_schema}"._private_jobs
        for each row execute function public.refuse_job()""".encode()
    )
    yield
    connection.execute("drop function public.refuse_job() cascade")


def attempt(scheduler: Scheduler, times: int) -> None:
    for _ in range(times):
        scheduler.attempt()


@pytest.mark.usefixtures("refusal")
def test_an_item_that_a_trigger_refuses__costs_no_other_item_its_tick(items: CronWorld) -> None:
    names = ["first", "refused", "last"]
    crontab = [CronItem(name, "* * * * *", payload={"is_refused": True} if name == "refused" else {}) for name in names]
    cron, _ = items.worker(crontab)
    cron.step()
    items.now = NOON + MINUTE
    attempt(cron, 5)
    assert [items.ticks(name) for name in names] == [["12:01"], [], ["12:01"]]
    assert items.troubles[0][0] == "cron: refused"
    assert cron.trouble is None


@pytest.mark.usefixtures("refusal")
def test_a_schedule_that_a_trigger_refuses__costs_no_other_schedule_its_tick(schedules: ScheduleWorld) -> None:
    names = ["first", "refused", "last"]
    for name in names:
        schedules.add(name, cron="* * * * *", payload={"is_refused": True} if name == "refused" else {})
    scheduler, _ = schedules.worker()
    schedules.settle(scheduler)
    schedules.now = NOON + MINUTE
    attempt(scheduler, 5)
    assert [schedules.ticks(name) for name in names] == [["12:01:00"], [], ["12:01:00"]]
    assert schedules.troubles[0].startswith("schedule refused: ")
    assert scheduler.trouble is None


def refused(*args: Any, **kwargs: Any) -> Any:
    raise psycopg.errors.InsufficientPrivilege("permission denied")


def test_schedules_that_cannot_be_read__keep_no_item_from_firing(
    items: CronWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "named_tasks", refused)
    cron, _ = items.worker([CronItem("often", "* * * * *")])
    attempt(cron, 1)
    items.now = NOON + MINUTE
    attempt(cron, 2)
    assert items.ticks("often") == ["12:01"]
    assert isinstance(cron.trouble, psycopg.errors.InsufficientPrivilege)


def test_a_crontab_that_cannot_be_read__keeps_no_schedule_from_firing(
    items: CronWorld, schedules: ScheduleWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedules.add("nightly", cron="* * * * *")
    cron, _ = items.worker([CronItem("often", "* * * * *")], registry=registry_of("report"))
    cron.step()
    monkeypatch.setattr(from_code, "unfired", refused)
    items.now = NOON + MINUTE
    attempt(cron, 2)
    assert schedules.ticks("nightly") == ["12:01:00"]
    assert isinstance(cron.trouble, psycopg.errors.InsufficientPrivilege)


def test_a_schedule_that_is_expected_before_the_next_look_for_items__is_fired(
    items: CronWorld, schedules: ScheduleWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monotonic = 0.0
    cron, _ = items.worker([CronItem("yearly", "0 0 1 1 *")], registry=registry_of("report"), clock=lambda: monotonic)
    monkeypatch.setattr(cron, "start", lambda: None)
    cron.round()
    schedules.add("soon", run_at=NOON + MINUTE)
    cron.expect(30)
    monotonic, items.now = 15, NOON + 45 * SECOND
    cron.round()
    assert schedules.ticks("soon") == []
    monotonic, items.now = 30, NOON + MINUTE
    cron.round()
    cron.round()
    assert schedules.ticks("soon") == ["12:01:00"]
