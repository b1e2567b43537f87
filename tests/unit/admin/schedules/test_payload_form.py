"""The form of a payload."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, NewType, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from django.db.models import TextChoices

from django_graphile_worker import registry, task
from django_graphile_worker.admin.schedules.payload_form import PayloadForm, payload_form, shape_of


class Colour(enum.Enum):
    RED = 1
    BLUE = "blue"


class Size(TextChoices):
    SMALL = "s", "Small size"


Month = NewType("Month", int)


@dataclass
class Nested:
    order: int


@dataclass
class Everything:
    text: str
    number: int
    share: float
    is_sure: bool
    day: date
    moment: datetime
    colour: Colour
    size: Size
    way: Literal["up", 2, True]
    nested: Nested
    month: Month
    rest: Any
    maybe: int | None
    items: list[Nested] = field(default_factory=list)
    note: str | None = None
    is_loud: bool = True
    amount: Decimal = Decimal("1.50")
    duration: timedelta = timedelta(hours=1)
    key: UUID | None = None
    password: str = "hunter2"


class Plain(TypedDict, total=False):
    month: int


class Model(pydantic.BaseModel):
    month: int = pydantic.Field(ge=1, le=12, title="Month of the year", description="From 1 on.")
    to: str = pydantic.Field(alias="recipient")
    copies: int = 1


class Struct(msgspec.Struct):
    month: int
    copies: int = 1


@dataclass
class Picky:
    month: int
    year: int = 2026

    def __post_init__(self) -> None:
        if self.month > 12:
            raise ValueError("There is no such month.")


FILLED = {
    "text": "ä b", "number": "-5", "share": "0.5", "is_sure": "on", "day": "2026-05-01",
    "moment": "2026-05-01T12:00+02:00", "colour": "1", "size": '"s"', "way": "2",
    "nested": '{"order": 1}', "month": "5", "rest": "[1]", "maybe": "",
}  # fmt: skip
STORED = {
    "text": "ä b", "number": -5, "share": 0.5, "is_sure": True, "day": "2026-05-01", "moment": "2026-05-01T12:00+02:00",
    "colour": 1, "size": "s", "way": 2, "nested": {"order": 1}, "month": 5, "rest": [1], "maybe": None,
}  # fmt: skip


@pytest.fixture
def form_for() -> Any:
    """Return a factory of forms for the payload of a task, bound if values are sent."""

    def make(
        annotation: Any, sent: dict[str, str] | None = None, payload: dict[str, Any] | None = None, **options: Any
    ) -> PayloadForm:
        def function(payload: Any) -> None: ...

        function.__annotations__["payload"] = annotation
        with registry.tasks.isolated():
            task("typed")(function)
            data = None if sent is None else {f"payload-{name}": value for name, value in sent.items()}
            form = payload_form(data, task="typed", payload=payload or {}, **options)
            form.is_valid()
            return form

    return make


FormFor = Callable[..., PayloadForm]


def test_fields__take_each_type_as_json(form_for: FormFor) -> None:
    form = form_for(Everything, FILLED)
    assert form.errors == {}
    assert form.payload == STORED


def test_fields__show_each_type(form_for: FormFor) -> None:
    form = form_for(Everything, payload=STORED | {"note": "two\nlines", "is_loud": False})
    assert not form.is_json
    assert "<textarea" in str(form["note"])
    sent = {each.name: str(each.value()) for each in form if each.value() not in (None, False)}
    assert sent["note"] == "two\nlines"
    assert form_for(Everything, sent).payload == STORED | {"note": "two\nlines", "is_loud": False}


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("number", "1.5", "Enter a whole number."),
        ("share", "nan", "Enter a number."),
        ("day", "1.5.2026", "Enter a valid date."),
        ("moment", "noon", "payload: expected a date and time in ISO 8601 at $.moment, got another string."),
        ("colour", '"1"', "Select a valid choice."),
        ("way", '"sideways"', "Select a valid choice."),
        ("nested", '{"order": "x"}', "payload: expected a whole number at $.nested.order, got a string."),
        ("nested", "{", "This is not JSON."),
        ("items", '[{"order": 1}, 2]', "payload: expected an object (Nested) at $.items[1], got a whole number."),
        ("text", "", "This field is required."),
        ("amount", "much", "payload: expected a decimal number at $.amount, got another string."),
        ("key", "7", "payload: expected a UUID at $.key, got another string."),
    ],
)
def test_error__is_at_its_field_and_is_that_of_the_worker(form_for: FormFor, name: str, value: str, error: str) -> None:
    form = form_for(Everything, {**FILLED, name: value})
    assert list(form.errors) == [name]
    assert error in form.errors[name][0]


def test_empty_field__leaves_the_default_to_the_task(form_for: FormFor) -> None:
    form = form_for(Everything)
    assert form.fields["amount"].help_text == "Such as 12.50. Default: 1.50"
    assert dict(form.fields["is_loud"].choices)[""] == "Default: Yes"  # type: ignore[attr-defined]
    assert "hunter2" not in str(form)


@pytest.mark.parametrize(
    "payload",
    [
        {**STORED, "unknown": 1},
        {**STORED, "number": "5"},
        {**STORED, "number": True},
        {**STORED, "text": ""},
        {**STORED, "text": "a\r\nb"},
        {**STORED, "colour": 3},
        {**STORED, "day": "May"},
        {**STORED, "note": None},
        {**STORED, "password": ""},
        {name: value for name, value in STORED.items() if name != "is_sure"},
    ],
)
def test_payload_that_fields_would_change__is_shown_as_json(form_for: FormFor, payload: dict[str, Any]) -> None:
    form = form_for(Everything, payload=payload)
    assert form.is_json
    assert json.loads(form.initial["json"]) == payload


@pytest.mark.parametrize("annotation", [Any, dict, dict[str, int], list[Nested], Nested | int, "Unknown"])
def test_other_annotations__have_a_json_editor(form_for: FormFor, annotation: Any) -> None:
    assert form_for(annotation).is_json


def test_json_editor__checks_what_the_worker_checks(form_for: FormFor) -> None:
    form = form_for(Nested, {"json": '{"order": 1, "sum": 2}'}, as_json=True)
    assert form.errors["json"] == ["payload: expected a field of Nested, got $.sum. It has order."]
    assert form_for(Nested, {"json": ""}, as_json=True).errors["json"]
    assert form_for(Any, {"json": ""}).payload == {}


def test_json_editor__does_not_take_a_form_without_it_for_an_empty_payload(form_for: FormFor) -> None:
    assert "json" in form_for(Any, {"month": "5"}).errors


def test_typed_dict__has_fields(form_for: FormFor) -> None:
    assert form_for(Plain, {"month": "5"}).payload == {"month": 5}


def test_pydantic_model__has_fields_with_titles_and_its_own_errors(form_for: FormFor) -> None:
    form = form_for(Model)
    assert list(form.fields) == ["month", "recipient", "copies"]
    assert (form.fields["month"].label, form.fields["month"].help_text) == ("Month of the year", "From 1 on.")
    assert form_for(Model, {"month": "5", "recipient": "Ada"}).payload == {"month": 5, "recipient": "Ada"}
    wrong = form_for(Model | None, {"month": "13", "recipient": "Ada", "copies": "1"})
    assert wrong.errors == {"month": ["Input should be less than or equal to 12"]}


def test_msgspec_struct__has_fields(form_for: FormFor) -> None:
    assert form_for(Struct, {"month": "5"}).payload == {"month": 5}
    assert form_for(Struct, {"month": "5", "copies": "2"}).payload == {"month": 5, "copies": 2}


def test_error_of_a_constructor__is_that_of_the_whole_payload(form_for: FormFor) -> None:
    assert form_for(Picky, {"month": "13"}).non_field_errors() == ["ValueError: There is no such month."]


def of_a_call(context: Any, month: int, *, way: Literal["up", "down"] = "up", rest: Any = None) -> None: ...


def with_nameless_arguments(*months: int) -> None: ...


def test_django_task__has_fields_for_its_arguments(framework: Any) -> None:
    from django_graphile_worker.backend import task as django_task

    decorate: Any = django_task(schedulable=True, takes_context=True)
    decorate(of_a_call)
    name = f"{__name__}.of_a_call"
    form = payload_form({"payload-month": "5", "payload-way": '"down"'}, task=name, payload={})
    assert form.is_valid()
    assert form.payload == {"args": [], "kwargs": {"month": 5, "way": "down"}}
    assert payload_form(None, task=name, payload=form.payload).initial == {"month": 5, "way": '"down"'}
    assert payload_form(None, task=name, payload={"args": [5]}).is_json


def test_django_task_with_nameless_arguments__has_a_json_editor(framework: Any) -> None:
    from django_graphile_worker.backend import task as django_task

    django_task(with_nameless_arguments)
    assert payload_form(None, task=f"{__name__}.with_nameless_arguments", payload={}).is_json


def test_task_without_payload__has_no_fields() -> None:
    with registry.tasks.isolated():

        @task("nothing")
        def nothing() -> None: ...

        shape = shape_of("nothing")
        assert shape is not None
        assert shape.arguments == ()
        assert shape_of("unknown") is None
