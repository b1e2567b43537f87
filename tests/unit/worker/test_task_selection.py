"""The entries of TASKS and EXCLUDE_TASKS, and the tasks that they match."""

from __future__ import annotations

from typing import Any

import pytest

from django_graphile_worker.conf import Settings
from django_graphile_worker.registry import Registry, task
from django_graphile_worker.worker.task_selection import selected_tasks, unmatched_patterns
from tests.support.stepped_worker import own_tasks


@pytest.fixture
def registry() -> Any:
    with own_tasks() as registry:
        for name in ("send_receipt", "send_invoice", "tidy"):
            task(name)(lambda payload: None)
        yield registry


def test_selected_tasks__match_what_is_included_and_not_excluded(registry: Registry) -> None:
    settings = Settings(tasks=("send_*", "nope"), exclude_tasks=("send_invoice",))
    assert set(selected_tasks(registry, settings)) == {"send_receipt"}


def test_unmatched_patterns__are_those_of_no_task(registry: Registry) -> None:
    assert unmatched_patterns(registry, Settings()) == {}
    assert unmatched_patterns(registry, Settings(tasks=("send_*", "tidy"), exclude_tasks=("*_invoice",))) == {}
    wrong = Settings(tasks=("send_recipt", "tidy", "shop.*"), exclude_tasks=("tidyy",))
    assert unmatched_patterns(registry, wrong) == {"TASKS": ("send_recipt", "shop.*"), "EXCLUDE_TASKS": ("tidyy",)}


def test_unmatched_patterns__are_no_paths_in_a_project_with_django_tasks(registry: Registry, settings: Any) -> None:
    """A worker imports such a task when its first job comes."""
    settings.TASKS = {"default": {"BACKEND": "django_graphile_worker.backend.GraphileWorkerBackend"}}
    assert unmatched_patterns(registry, Settings(tasks=("nope", "shop.*"))) == {"TASKS": ("nope",)}
