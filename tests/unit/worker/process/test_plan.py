"""Plans: what a command line asks for."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.registry import task, tasks
from django_graphile_worker.worker.process.plan import Plan


@override_settings(GRAPHILE_WORKER={"CONCURRENCY": 0})
def test_plan__can_be_made_while_the_settings_have_a_mistake() -> None:
    """The process that waits for a change of the code has a plan, too."""
    plan = Plan(overrides={"tasks": ("a",)}, reload=True)
    with pytest.raises(ConfigurationError, match="CONCURRENCY"):
        plan.places()


@override_settings(GRAPHILE_WORKER={"PROCESSES": 4})
@pytest.mark.parametrize(
    ("plan", "processes"), [(Plan(), 4), (Plan(overrides={"processes": 2}), 2), (Plan(reload=True), 1)]
)
def test_processes__are_the_settings_the_command_lines_or_one_under_reload(plan: Plan, processes: int) -> None:
    assert plan.processes == plan.settings.processes == processes
    assert [place.settings.processes for place in plan.places()] == [processes]


NAMED = {"default": {"PROCESSES": 3}, "reports": {"SCHEMA": "reports"}}


@override_settings(GRAPHILE_WORKER=NAMED)
def test_processes__are_those_of_the_plan_in_every_installation() -> None:
    places = Plan(installations=("default", "reports")).places()
    assert [place.settings.processes for place in places] == [3, 3]


@pytest.mark.parametrize(
    ("settings", "plan", "is_needed"),
    [
        ({}, Plan(), False),
        ({"PROCESSES": 2}, Plan(), True),
        ({"PROCESSES": 2}, Plan(once=True), True),
        ({"PROCESSES": 2}, Plan(reload=True), False),
        ({"MAX_MEMORY": 500}, Plan(), True),
        ({"MAX_AGE": 3600}, Plan(once=True), False),
        ({"MAX_JOBS": 100}, Plan(reload=True), False),
        ({"TIMEOUT": 30}, Plan(), True),
        ({"TIMEOUT": 30}, Plan(once=True), False),
        ({"TIMEOUT": 30}, Plan(reload=True), False),
    ],
)
def test_supervisor__is_needed_for_several_processes_or_if_processes_are_replaced(
    settings: dict[str, int], plan: Plan, is_needed: bool
) -> None:
    with override_settings(GRAPHILE_WORKER=settings), tasks.isolated() as registry:
        registry.has_time_limits = False
        assert plan.needs_supervisor(plan.places()) == is_needed


def test_time_limit_of_a_single_task__needs_a_supervisor() -> None:
    with tasks.isolated():
        task("limited", timeout=5)(lambda payload: None)
        assert Plan().needs_supervisor(Plan().places())
