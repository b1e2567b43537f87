"""Errors name the place of a value, and never the value: it may be a secret."""

from __future__ import annotations

import datetime
import enum
import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from tests.support.slot import Slot


@dataclass
class Line:
    sku: str
    quantity: int = 1


class Mood(enum.Enum):
    GOOD = "good"


class Card(msgspec.Struct, tag=True):
    number: int


class Cash(msgspec.Struct, tag=True):
    amount: int


class SecretStruct(msgspec.Struct):
    password: int = 0
    mood: Mood = Mood.GOOD
    payment: Card | Cash | None = None
    tokens: dict[str, int] = {}
    secret: Weak | None = None


class Weak(msgspec.Struct):
    word: str

    def __post_init__(self) -> None:
        raise ValueError(f"Invalid word {self.word}")


class ByCard(pydantic.BaseModel):
    kind: Literal["card"]


class ByCash(pydantic.BaseModel):
    kind: Literal["cash"]


class SecretModel(pydantic.BaseModel):
    password: int = 0
    mood: Mood = Mood.GOOD
    payment: ByCard | ByCash | None = pydantic.Field(default=None, discriminator="kind")
    tokens: dict[str, int] = {}
    secret: str = ""

    @pydantic.field_validator("secret")
    @classmethod
    def strong(cls, value: str) -> str:
        raise ValueError(f"too weak: {value}")


@dataclass
class SecretFields:
    password: int = 0
    mood: Mood = Mood.GOOD
    kind: Literal["sale"] = "sale"
    due: datetime.date | None = None
    point: tuple[int, int] = (0, 0)
    tokens: dict[str, int] = field(default_factory=dict)
    secret: Line | None = None


@pydantic.dataclasses.dataclass(config=pydantic.ConfigDict(extra="forbid"))
class SecretDataclass:
    password: Annotated[str, pydantic.Field(min_length=20)] = "a very long password indeed"
    tokens: dict[str, int] = field(default_factory=dict)


def take_secret_dataclass(payload: SecretDataclass) -> None: ...


def take_secret_dataclasses(payload: list[SecretDataclass]) -> None: ...


def take_secret_struct(payload: SecretStruct) -> None: ...


def take_secret_model(payload: SecretModel) -> None: ...


def take_secret_fields(payload: SecretFields) -> None: ...


@pytest.mark.parametrize(
    ("function", "payload_text", "place"),
    [
        (take_secret_fields, '{"password": "hunter2"}', "$.password"),
        (take_secret_fields, '{"mood": "hunter2"}', "$.mood"),
        (take_secret_fields, '{"kind": "hunter2"}', "$.kind"),
        (take_secret_fields, '{"due": "hunter2"}', "$.due"),
        (take_secret_fields, '{"point": ["hunter2"]}', "$.point"),
        (take_secret_fields, '{"tokens": {"hunter2": "x"}}', "$.tokens[…]"),
        (take_secret_fields, '{"secret": {"sku": "a", "hunter2": 1}}', "$.secret[…]"),
        (take_secret_fields, '["hunter2"]', "$"),
        (take_secret_struct, '{"password": "hunter2"}', "$.password"),
        (take_secret_struct, '{"mood": "hunter2"}', "$.mood"),
        (take_secret_struct, '{"payment": {"type": "hunter2"}}', "$.payment.type"),
        (take_secret_struct, '{"tokens": {"hunter2": "x"}}', "$.tokens[...]"),
        (take_secret_struct, '{"secret": {"word": "hunter2"}}', "$.secret"),
        (take_secret_model, '{"password": "hunter2"}', "$.password"),
        (take_secret_model, '{"mood": "hunter2"}', "$.mood"),
        (take_secret_model, '{"payment": {"kind": "hunter2"}}', "$.payment"),
        (take_secret_model, '{"tokens": {"hunter2": "x"}}', "$.tokens[…]"),
        (take_secret_model, '{"secret": "hunter2"}', "$.secret"),
        (take_secret_model, '"hunter2"', "$"),
        (take_secret_dataclass, '{"password": "hunter2"}', "$.password"),
        (take_secret_dataclass, '{"tokens": {"hunter2": "x"}}', "$.tokens[…]"),
        (take_secret_dataclasses, '[{"password": "hunter2"}]', "$[0].password"),
    ],
)
def test_misfit__is_named_by_its_place_and_never_by_its_value(
    slot: Slot, function: Any, payload_text: str, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG", "django_graphile_worker"):
        error = slot.failure(function, payload_text).error
    assert "hunter2" not in error
    assert "hunter2" not in caplog.text
    assert f" {place} " in re.sub(r"[,.](?= )", " ", error)
