from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest

from django_graphile_worker import job_options, recurring, registry
from django_graphile_worker.crontab import CronItem, Draft
from django_graphile_worker.job_options import OPTIONS, DefaultOptions, JobOption, JobOptions, Kind, SpecOptions
from django_graphile_worker.jobs import Job, JobDefaults, JobSpec
from django_graphile_worker.models import Schedule
from django_graphile_worker.recurring import job_of, job_of_item
from django_graphile_worker.schedules.times import Definition

FIELDS_OF_SPECS = [each.name for each in dataclasses.fields(JobSpec)]
NINE = datetime(2026, 5, 1, 9, tzinfo=UTC)


def test_types__have_each_option_of_the_table() -> None:
    assert list(SpecOptions.__annotations__) == list(OPTIONS)
    assert list(JobOptions.__annotations__) == [*OPTIONS, "using", "installation"]
    of_tasks = [name for name, option in OPTIONS.items() if option.is_of_tasks]
    assert list(DefaultOptions.__annotations__) == of_tasks


def test_specs_and_defaults__have_each_option_of_the_table() -> None:
    assert ["identifier", "payload", *OPTIONS] == FIELDS_OF_SPECS
    assert [each.name for each in dataclasses.fields(JobDefaults)] == list(DefaultOptions.__annotations__)


def test_each_option__is_stored_somewhere_and_passes_none() -> None:
    for name, option in OPTIONS.items():
        assert option.check(None) is None, name
        assert option.attribute is None or hasattr(Job, option.attribute) or option.attribute in Job.__annotations__


@pytest.fixture
def colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add an option of ``@task`` that is stored as a flag."""
    option = JobOption(
        name="colour",
        kind=Kind.TEXT,
        check=lambda value: value,
        is_of_tasks=True,
        flag=lambda value, run_at: f"colour:{value}:{run_at:%H:%M}",
        argument="colour",
        metavar="COLOUR",
        help="",
        label="",
    )
    monkeypatch.setitem(OPTIONS, "colour", option)
    monkeypatch.setattr(job_options, "FLAG_OPTIONS", (*job_options.FLAG_OPTIONS, option))


@dataclasses.dataclass(frozen=True, slots=True)
class ColouredItem(CronItem):
    """A crontab item with the field that the option needs."""

    colour: str | None = None


def coloured_task(colour: str = "red") -> Any:
    options: Any = {"colour": colour, "flags": ["slow"]}
    with registry.tasks.isolated():
        return registry.task("paint", **options)(lambda: None)


@pytest.mark.usefixtures("colour")
def test_option_of_tasks_that_is_stored_as_a_flag__reaches_the_jobs_of_schedules() -> None:
    schedule = Schedule(id=7, task="paint", payload={}, cron="0 9 * * *", overlap="allow")
    job = job_of(schedule, Definition.of(schedule), coloured_task(), payload="{}", at=NINE)
    assert job.flags[:2] == ("slow", "colour:red:09:00")
    assert len(job.flags) == 3


@pytest.mark.usefixtures("colour")
@pytest.mark.parametrize(("own", "expected"), [(None, "red"), ("blue", "blue")])
def test_option_of_tasks_that_is_stored_as_a_flag__reaches_the_jobs_of_the_crontab(
    own: str | None, expected: str
) -> None:
    written = ColouredItem("paint", "0 9 * * *", colour=own)
    item = recurring._with_defaults(Draft(), coloured_task(), "a test", written)
    job = job_of_item(item, at=NINE)
    assert job.flags[:2] == ("slow", f"colour:{expected}:09:00")
    assert len(job.flags) == 3


def test_crontab_item__has_each_option_of_tasks() -> None:
    of_tasks = {name for name, option in OPTIONS.items() if option.is_of_tasks}
    fields = {each.name for each in dataclasses.fields(CronItem)}
    # Jobs of the crontab have their own rule for runs that overlap.
    assert of_tasks - fields == {"unique"}
