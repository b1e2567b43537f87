from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import pytest

from django_graphile_worker.conf import Settings
from django_graphile_worker.jobs import Job, JobDefaults, JobSpec
from django_graphile_worker.values import Value


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Point(Value):
    x: Any
    y: Any = 0


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class OtherPoint(Value):
    x: Any
    y: Any = 0


def test_values_with_the_same_fields_are_equal_and_one_in_a_set() -> None:
    assert Point(1, 2) == Point(1, 2) != Point(2, 1)
    assert {Point(1, 2), Point(1, 2), Point(2, 1)} == {Point(1, 2), Point(2, 1)}


def test_a_value_equals_nothing_of_another_class() -> None:
    assert Point(1, 2) != OtherPoint(1, 2)
    assert Point(1, 2) != (1, 2)


def test_a_value_that_holds_something_unhashable_is_so_too() -> None:
    with pytest.raises(TypeError, match="unhashable type: 'dict'"):
        hash(Point({}))


def test_a_value_is_shown_as_the_code_that_makes_it() -> None:
    assert repr(Point("a", None)) == "Point(x='a', y=None)"
    assert eval(repr(JobDefaults(priority=3))) == JobDefaults(priority=3)
    assert repr(Settings()).startswith("Settings(schema='graphile_worker', database='default', ")


@pytest.mark.parametrize("value", [JobSpec("a", 1), JobDefaults(queue_name="a"), Settings().replace(concurrency=3)])
def test_a_value_cannot_be_changed_only_copied(value: Any) -> None:
    name = next(iter(value.__dataclass_fields__))
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, "other")
    with pytest.raises(FrozenInstanceError):
        delattr(value, name)
    assert copy.copy(value) == replace(value) == pickle.loads(pickle.dumps(value)) == value


@pytest.mark.parametrize("kind", [Settings, Job, JobDefaults, JobSpec])
def test_no_start_makes_the_methods_that_values_share(kind: type[Value]) -> None:
    assert {"__eq__", "__hash__", "__repr__"} & set(vars(kind)) == set()
