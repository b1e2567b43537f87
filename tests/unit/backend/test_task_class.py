"""Django's ``Task`` with the options of a job."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

from django_graphile_worker import Unique


@pytest.mark.parametrize("name", ["add", "report", "mail", "limited"])
def test_task__is_pickled_by_the_path_of_its_function(framework: Any, name: str) -> None:
    task = getattr(framework, name)
    changed = task.using(priority=5, run_after=timedelta(hours=1), max_attempts=2, flags=["slow"])
    found = pickle.loads(pickle.dumps(changed))
    assert found == changed
    assert (found.max_attempts, found.flags, found.job_key) == (2, ("slow",), task.job_key)


def test_path_without_a_task__cannot_be_unpickled(framework: Any) -> None:
    from django_graphile_worker.backend.task_class import _unpickled

    with pytest.raises(ValueError, match=r"Expected 'builtins\.any' to point to a Task instance"):
        _unpickled("builtins.any", {})


def test_options__do_not_take_part_in_comparisons(framework: Any) -> None:
    assert framework.add.using(max_attempts=7) == framework.add
    assert framework.add.using(priority=7) != framework.add


def test_job_key__gets_the_arguments(framework: Any) -> None:
    assert framework.report.job_key_for([7], {"title": "x"}) == "report:7"
    assert framework.report.using(job_key="mine").job_key_for([7], {}) == "mine"
    assert framework.add.job_key_for([7], {}) is None


def test_unique_with_a_function__comes_from_the_path_when_it_is_unpickled(framework: Any) -> None:
    changed = framework.add.using(unique=Unique(key=lambda left, right=0: str(left)))
    assert pickle.loads(pickle.dumps(changed)).unique is None
    assert pickle.loads(pickle.dumps(framework.add.using(unique=Unique("k", 60)))).unique == Unique("k", 60)
