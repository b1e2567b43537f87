from __future__ import annotations

import copy
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, asdict, fields, is_dataclass, replace
from typing import Any

import pytest

from django_graphile_worker.conf import Settings
from django_graphile_worker.frozen import Frozen
from django_graphile_worker.jobs import JobDefaults, JobSpec


class Point(Frozen):
    x: Any
    y: Any = 0


class OtherPoint(Frozen):
    x: Any
    y: Any = 0


def test_values_with_the_same_fields_are_equal_and_one_in_a_set() -> None:
    assert Point(x=1, y=2) == Point(x=1, y=2) != Point(x=2, y=1)
    assert {Point(x=1, y=2), Point(x=1, y=2), Point(x=2, y=1)} == {Point(x=1, y=2), Point(x=2, y=1)}


def test_a_value_equals_nothing_of_another_class() -> None:
    assert Point(x=1, y=2) != OtherPoint(x=1, y=2)
    assert Point(x=1, y=2) != (1, 2)


def test_a_value_that_holds_something_unhashable_is_so_too() -> None:
    with pytest.raises(TypeError, match="unhashable type: 'dict'"):
        hash(Point(x={}))


def test_a_value_is_shown_as_the_code_that_makes_it() -> None:
    assert repr(Point(x="a", y=None)) == "Point(x='a', y=None)"
    assert eval(repr(JobDefaults(priority=3))) == JobDefaults(priority=3)
    assert repr(Settings()).startswith("Settings(schema='graphile_worker', database='default', ")


@pytest.mark.parametrize("value", [JobSpec("a", 1), JobDefaults(queue_name="a"), Settings().replace(concurrency=3)])
def test_a_value_cannot_be_changed_only_copied(value: Any) -> None:
    name = fields(value)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, "other")
    with pytest.raises(FrozenInstanceError):
        delattr(value, name)
    assert copy.copy(value) == replace(value) == pickle.loads(pickle.dumps(value)) == value


def test_a_value_wants_every_field_that_has_no_default_and_no_other() -> None:
    assert Point(x=1) == Point(x=1, y=0)
    with pytest.raises(TypeError, match=r"^Point: expected 'x', got none\. Point: expected a known field, got 'z'\.$"):
        Point(y=1, z=2)  # type: ignore[call-arg]


def test_a_value_is_a_dataclass_for_the_functions_of_dataclasses() -> None:
    assert is_dataclass(OtherPoint)
    assert is_dataclass(Point(x=1))
    assert [field.name for field in fields(Point)] == ["x", "y"]
    assert asdict(Point(x=1)) == {"x": 1, "y": 0}
    assert replace(Point(x=1, y=2), y=3) == Point(x=1, y=3)
    assert not is_dataclass(Frozen)


def test_a_value_of_a_subclass_has_the_fields_of_its_parent_too() -> None:
    class Place(Point):
        name: str
        y: Any = 7

    place = Place(x=1, name="here")
    assert repr(place).endswith("Place(x=1, y=7, name='here')")
    assert replace(place, x=2) == Place(x=2, y=7, name="here") != Point(x=2, y=7)
    with pytest.raises(TypeError, match=r"^Place: expected 'name', got none\.$"):
        Place(x=1)  # type: ignore[call-arg]


def test_threads_that_ask_first_at_once_all_get_an_answer() -> None:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            for _ in range(50):
                kind = type("Fresh", (Frozen,), {"__annotations__": {"x": "int"}})
                values = list(pool.map(lambda x, kind=kind: replace(kind(x=x), x=x + 1), range(16)))
                assert [value.x for value in values] == list(range(1, 17))
    finally:
        sys.setswitchinterval(usual)


def test_no_start_makes_a_dataclass_before_its_fields_are_read() -> None:
    class Fresh(Frozen):
        x: int

    assert Fresh(x=1) == Fresh(x=1)
    assert not isinstance(vars(Fresh)["__dataclass_fields__"], dict)
    assert fields(Fresh)
    assert isinstance(vars(Fresh)["__dataclass_fields__"], dict)
