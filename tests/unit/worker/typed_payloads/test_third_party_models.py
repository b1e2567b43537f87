"""Payloads as models of pydantic and msgspec."""

from __future__ import annotations

from typing import Any

import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from django_graphile_worker.worker.outcomes import Succeeded
from tests.support.slot import Slot

received: list[Any] = []


class Model(pydantic.BaseModel):
    name: str
    age: int


class Struct(msgspec.Struct):
    name: str
    age: int


def take_model(payload: Model) -> None:
    received.append(payload)


def take_struct(payload: Struct) -> None:
    received.append(payload)


@pytest.fixture(autouse=True)
def forget() -> None:
    received.clear()


@pytest.mark.parametrize(("function", "kind"), [(take_model, Model), (take_struct, Struct)])
def test_models_of_other_libraries__are_made_and_checked(slot: Slot, function: Any, kind: Any) -> None:
    assert isinstance(slot.run(function, '{"name": "Ada", "age": 36}'), Succeeded)
    assert received == [kind(name="Ada", age=36)]
    error = slot.failure(function, '{"name": "Ada", "age": "old"}').error
    assert "PayloadError" in error
    assert "age" in "".join(error.splitlines()[:2])


def test_misfits_of_a_model__say_what_was_expected_at_each_place(slot: Slot) -> None:
    said = slot.failure(take_model, '{"age": "old"}').error.splitlines()[0]
    assert said.endswith(
        "PayloadError: payload: $.name does not fit: Field required; $.age does not fit: Input should be a valid "
        "integer, unable to parse string as an integer."
    )
    said = slot.failure(take_struct, '{"name": "Ada", "age": "old"}').error.splitlines()[0]
    assert said.endswith("PayloadError: payload: $.age does not fit: Expected `int`, got `str`.")
