"""Interfaces of dataclasses, typing, pydantic and msgspec that are not documented, and that converters rely on."""

from __future__ import annotations

import dataclasses
import enum
import typing
from dataclasses import InitVar, dataclass
from typing import Any, Generic, TypeVar

import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from django_graphile_worker.worker.typed_payloads import third_party_models

Item = TypeVar("Item", bound=int)


@dataclass
class Box(Generic[Item]):
    items: list[Item]
    label: InitVar[str]


@dataclass
class IntBox(Box[int]): ...


def test_dataclass_fields__also_hold_init_vars() -> None:
    found = vars(Box)["__dataclass_fields__"]
    assert (list(found), [field.name for field in dataclasses.fields(Box)]) == (["items", "label"], ["items"]), (
        "__dataclass_fields__ no longer holds InitVars beside the fields: adapt dataclass_fields.init_fields()."
    )


def test_generic_classes__know_their_type_variables_and_those_of_their_bases() -> None:
    annotation = typing.get_type_hints(Box)["items"]
    assert (
        vars(Box)["__parameters__"],
        vars(IntBox)["__orig_bases__"],
        annotation.__parameters__,
        Item.__bound__,
    ) == ((Item,), (Box[int],), (Item,), int), (
        "__parameters__, __orig_bases__ or __bound__ of typing has changed: adapt dataclass_fields."
    )


class Model(pydantic.BaseModel):
    age: int


@pydantic.dataclasses.dataclass
class PydanticDataclass:
    age: int


@pytest.mark.parametrize("kind", [Model, PydanticDataclass])
def test_pydantic__marks_the_classes_that_it_validates(kind: type) -> None:
    assert "__pydantic_validator__" in vars(kind), (
        "pydantic no longer marks its classes with __pydantic_validator__: adapt models._is_pydantic(), or its "
        "dataclasses are made without its rules."
    )
    assert not third_party_models.is_model(Box)


class Mood(enum.Enum):
    GOOD = "good"


class Struct(msgspec.Struct):
    ages: dict[str, int]
    mood: Mood = Mood.GOOD
    counts: dict[int, int] = {}


@pytest.mark.parametrize(
    ("value", "path", "text"),
    [
        ({"ages": {"Ada": "old"}}, "$.ages[...]", "Expected `int`, got `str`"),
        ({"ages": {}, "mood": "bad"}, "$.mood", "Invalid enum value"),
        ({"ages": {}, "counts": {"x": 1}}, "$.counts[a key]", "Expected `int`, got `str`"),
        ({}, "$", "Object missing required field `ages`"),
    ],
)
def test_msgspec__writes_the_place_and_the_quote_where_they_are_expected(value: Any, path: str, text: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, Struct)
    (problem,) = third_party_models._msgspec_problems(caught.value, "$")
    assert (problem.path, problem.text) == (path, text), (
        f"msgspec changed the text of its errors ({caught.value}): adapt the patterns of models.py, or an error may "
        "show a value."
    )
    assert third_party_models._MSGSPEC_TYPES.fullmatch(problem.text), (
        "a message about types alone is no longer recognised."
    )
