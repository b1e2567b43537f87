"""Payload parameters with a type of their own."""

from __future__ import annotations

import datetime
import enum
import json
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import InitVar, dataclass, field
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Generic, Literal, TypedDict, TypeVar

import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.worker.outcomes import Succeeded
from django_graphile_worker.worker.typed_payloads import converters
from tests.support.slot import Slot

received: list[Any] = []


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Line:
    sku: str
    quantity: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    id: uuid.UUID
    lines: list[Line]
    total: Decimal
    placed_at: datetime.datetime
    due: datetime.date | None = None
    size: Size = Size.SMALL
    kind: Literal["sale", "gift"] = "sale"
    weight: float = 0.0
    tags: set[str] = field(default_factory=set)
    point: tuple[int, int] = (0, 0)
    by_shop: dict[str, Line] = field(default_factory=dict)
    parent: Order | None = None
    patience: datetime.timedelta = datetime.timedelta(0)
    note: Any = None


class Model(pydantic.BaseModel):
    name: str
    age: int


class Struct(msgspec.Struct):
    name: str
    age: int


class Typed(TypedDict):
    name: str


def take_order(payload: Order) -> None:
    received.append(payload)


def take_lines(payload: list[Line]) -> list[Any]:
    received.append(payload)
    return [ValueError("no stock") if line.sku == "b" else None for line in payload]


def take_optional(payload: Line | None) -> None:
    received.append(payload)


def take_model(payload: Model) -> None:
    received.append(payload)


def take_struct(payload: Struct) -> None:
    received.append(payload)


async def take_line_async(payload: Line) -> None:
    received.append(payload)


def take_typed(payload: Typed) -> None:
    received.append(payload)


def take_dict(payload: dict[str, int]) -> None:
    received.append(payload)


ORDER = (
    '{"id": "0b0e5a26-6a0c-4f0e-9c56-4c6f0a4b7a11", "lines": [{"sku": "a"}, {"sku": "b", "quantity": 2}],'
    ' "total": "9.90", "placed_at": "2026-01-02T03:04:05Z"%s}'
)


@pytest.fixture(autouse=True)
def forget() -> None:
    received.clear()


def test_dataclass__is_made_from_the_payload(slot: Slot) -> None:
    more = (
        ', "due": "2026-02-03", "size": "l", "kind": "gift", "weight": 2, "tags": ["x", "x"], "point": [1, 2],'
        ' "by_shop": {"here": {"sku": "c"}}, "parent": null, "patience": 90, "note": {"free": true}'
    )
    assert isinstance(slot.run(take_order, ORDER % more), Succeeded)
    (order,) = received
    assert order == Order(
        id=uuid.UUID("0b0e5a26-6a0c-4f0e-9c56-4c6f0a4b7a11"),
        lines=[Line("a"), Line("b", 2)],
        total=Decimal("9.90"),
        placed_at=datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        due=datetime.date(2026, 2, 3),
        size=Size.LARGE,
        kind="gift",
        weight=2,
        tags={"x"},
        point=(1, 2),
        by_shop={"here": Line("c")},
        patience=datetime.timedelta(seconds=90),
        note={"free": True},
    )


@pytest.mark.parametrize(
    ("payload_text", "complaint"),
    [
        ("[]", "expected an object (Order) at $, got an array"),
        ("null", "expected an object (Order) at $, got null"),
        ('{"lines": [], "total": 1, "placed_at": "2026-01-02"}', "expected the field $.id (Order), got none"),
        (ORDER % ', "weihgt": 1', "got $.weihgt. Did you mean 'weight'?"),
        (ORDER % ', "due": "soon"', "expected a date in ISO 8601 at $.due, got another string"),
        (ORDER % ', "size": "m"', "expected one of 's', 'l' at $.size, got another string"),
        (ORDER % ', "kind": "loan"', "expected one of 'sale', 'gift' at $.kind, got another string"),
        (ORDER % ', "weight": true', "expected a number at $.weight, got true or false"),
        (ORDER % ', "point": [1]', "expected an array of 2 items at $.point, got 1."),
        (ORDER % ', "tags": [1]', "expected a string at $.tags[0], got a whole number"),
        (ORDER % ', "by_shop": {"x": {"quantity": 1}}', "expected the field $.by_shop.x.sku (Line), got none"),
        (ORDER.replace('"quantity": 2', '"quantity": "2"') % "", "expected a whole number at $.lines[1].quantity"),
        (ORDER.replace('"9.90"', '"many"') % "", "expected a decimal number at $.total, got another string"),
        (ORDER % ', "parent": {"id": 1}', "$.parent"),
    ],
)
def test_payload_that_does_not_fit__fails_the_job_and_names_the_field(
    slot: Slot, payload_text: str, complaint: str
) -> None:
    error = slot.failure(take_order, payload_text).error
    assert "PayloadError" in error.splitlines()[0]
    assert complaint in error
    assert "Traceback" not in error
    assert received == []


def test_list_of_dataclasses__goes_with_batch_results(slot: Slot) -> None:
    outcome = slot.failure(take_lines, '[{"sku":"a"},{"sku":"b"}]')
    assert received == [[Line("a"), Line("b")]]
    assert outcome.payload_text == '[{"sku":"b"}]'


def test_misfit_in_a_list__names_the_item(slot: Slot) -> None:
    assert "$[1].sku" in slot.failure(take_lines, '[{"sku":"a"},{}]').error


def test_optional_dataclass__takes_null(slot: Slot) -> None:
    slot.run(take_optional, "null")
    slot.run(take_optional, '{"sku": "a"}')
    assert received == [None, Line("a")]


def test_async_task__receives_one_too(slot: Slot) -> None:
    assert isinstance(slot.run(take_line_async, '{"sku": "a"}'), Succeeded)
    assert received == [Line("a")]
    assert "$.quantity" in slot.failure(take_line_async, '{"sku": "a", "quantity": null}').error


@pytest.mark.parametrize(("function", "kind"), [(take_model, Model), (take_struct, Struct)])
def test_models_of_other_libraries__are_made_and_checked(slot: Slot, function: Any, kind: Any) -> None:
    assert isinstance(slot.run(function, '{"name": "Ada", "age": 36}'), Succeeded)
    assert received == [kind(name="Ada", age=36)]
    error = slot.failure(function, '{"name": "Ada", "age": "old"}').error
    assert "PayloadError" in error
    assert "age" in "".join(error.splitlines()[:2])


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


def take_secret_dataclass(payload: SecretDataclass) -> None:
    received.append(payload)


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


def test_misfits_of_a_model__say_what_was_expected_at_each_place(slot: Slot) -> None:
    said = slot.failure(take_model, '{"age": "old"}').error.splitlines()[0]
    assert said.endswith(
        "PayloadError: payload: $.name does not fit: Field required; $.age does not fit: Input should be a valid "
        "integer, unable to parse string as an integer."
    )
    said = slot.failure(take_struct, '{"name": "Ada", "age": "old"}').error.splitlines()[0]
    assert said.endswith("PayloadError: payload: $.age does not fit: Expected `int`, got `str`.")


@pytest.mark.parametrize("function", [take_typed, take_dict])
def test_plain_types__are_not_checked(slot: Slot, function: Any) -> None:
    assert isinstance(slot.run(function, '["anything"]'), Succeeded)
    assert received == [["anything"]]


def test_pydantic_dataclass__is_made_by_its_own_rules(slot: Slot) -> None:
    assert isinstance(slot.run(take_secret_dataclass, '{"tokens": {"a": "1"}}'), Succeeded)
    assert received[0].tokens == {"a": 1}


Item = TypeVar("Item")
Bound = TypeVar("Bound", bound=Line)


@dataclass
class Page(Generic[Item]):
    items: list[Item]
    best: Item | None = None
    by_name: dict[str, list[Item]] = field(default_factory=dict)
    next: Page[Item] | None = None


@dataclass
class NamedPage(Page[list[Item]], Generic[Item]):
    name: Item | None = None


@dataclass
class LinePage(Page[Line]): ...


@dataclass
class BoundPage(Generic[Bound]):
    items: list[Bound]


class GenericStruct(msgspec.Struct, Generic[Item]):
    items: list[Item]


@pydantic.dataclasses.dataclass
class GenericDataclass(Generic[Item]):
    items: list[Item]


@pytest.mark.parametrize(
    ("annotation", "payload", "made"),
    [
        (Page[Line], {"items": [{"sku": "a"}], "best": {"sku": "b"}}, Page([Line("a")], Line("b"))),
        (Page[Line], {"items": [], "by_name": {"x": [{"sku": "a"}]}}, Page([], by_name={"x": [Line("a")]})),
        (Page[Line], {"items": [], "next": {"items": [{"sku": "a"}]}}, Page([], next=Page([Line("a")]))),
        (list[Page[Line]], [{"items": [{"sku": "a"}]}], [Page([Line("a")])]),
        (Page, {"items": [{"sku": "a"}]}, Page([{"sku": "a"}])),
        (NamedPage[Line], {"items": [[{"sku": "a"}]], "name": {"sku": "b"}}, NamedPage([[Line("a")]], name=Line("b"))),
        (LinePage, {"items": [{"sku": "a"}]}, LinePage([Line("a")])),
        (BoundPage, {"items": [{"sku": "a"}]}, BoundPage([Line("a")])),
        (GenericStruct[Line], {"items": [{"sku": "a"}]}, GenericStruct([Line("a")])),
        (GenericDataclass[Line], {"items": [{"sku": "a"}]}, GenericDataclass([Line("a")])),
    ],
)
def test_generic_class__is_made_with_its_types_filled_in(annotation: Any, payload: Any, made: Any) -> None:
    convert = converters.converter_for(annotation)
    assert convert is not None
    assert convert(payload, "$") == made


def test_misfit_in_a_generic_class__is_named_by_its_place() -> None:
    convert = converters.converter_for(Page[Line])
    assert convert is not None
    with pytest.raises(PayloadError, match=r"expected a string at \$\.items\[0\]\.sku"):
        convert({"items": [{"sku": 1}]}, "$")


@dataclass
class Keyed:
    prices: dict[int, Decimal] = field(default_factory=dict)
    ratios: dict[float, int] = field(default_factory=dict)
    answers: dict[bool, int] = field(default_factory=dict)
    days: dict[datetime.date, int] = field(default_factory=dict)
    sizes: dict[Size, int] = field(default_factory=dict)
    priorities: dict[Priority, int] = field(default_factory=dict)
    either: dict[int | None, int] = field(default_factory=dict)
    pairs: dict[tuple[int, int], int] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)


class Priority(enum.IntEnum):
    HIGH = 1


def take_keyed(payload: Keyed) -> None:
    received.append(payload)


def test_keys__are_made_from_the_text_that_json_made_of_them(slot: Slot) -> None:
    keyed = Keyed(
        prices={1: Decimal(2), -10: Decimal(3)},
        ratios={1.5: 1},
        answers={True: 1, False: 0},
        days={datetime.date(2026, 1, 2): 1},
        sizes={Size.LARGE: 1},
        priorities={Priority.HIGH: 1},
        either={None: 1, 2: 2},
        texts={"1": 1},
    )
    text = (
        '{"prices": {"1": 2, "-10": 3}, "ratios": {"1.5": 1}, "answers": {"true": 1, "false": 0},'
        ' "days": {"2026-01-02": 1}, "sizes": {"l": 1}, "priorities": {"1": 1}, "either": {"null": 1, "2": 2},'
        ' "texts": {"1": 1}}'
    )
    assert isinstance(slot.run(take_keyed, text), Succeeded)
    assert received == [keyed]
    assert {type(key) for key in received[0].prices} == {int}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"prices": {"x": 1}}', "expected a whole number at $.prices.x, got a string as the key."),
        ('{"prices": {"1.5": 1}}', 'expected a whole number at $.prices["1.5"], got a string as the key.'),
        ('{"days": {"1": 1}}', 'expected a date in ISO 8601 at $.days["1"], got another string as the key.'),
        ('{"pairs": {"[1, 2]": 1}}', "expected an array of 2 items at $.pairs"),
    ],
)
def test_key_that_does_not_fit__is_named(slot: Slot, text: str, complaint: str) -> None:
    assert complaint in slot.failure(take_keyed, text).error


@dataclass
class Sealed:
    name: str
    sealed_with: InitVar[Line]
    note: InitVar[str] = "none"
    shared: ClassVar[int] = 3
    seal: str = field(init=False)

    def __post_init__(self, sealed_with: Line, note: str) -> None:
        self.seal = f"{sealed_with.sku} {note}"


def take_sealed(payload: Sealed) -> None:
    received.append(payload)


def test_init_var__is_given_to_post_init(slot: Slot) -> None:
    assert isinstance(slot.run(take_sealed, '{"name": "a", "sealed_with": {"sku": "wax"}}'), Succeeded)
    assert received[0].seal == "wax none"
    assert "expected the field $.sealed_with (Sealed), got none" in slot.failure(take_sealed, '{"name": "a"}').error
    for name in ("shared", "seal"):
        text = json.dumps({"name": "a", "sealed_with": {"sku": "wax"}, name: 1})
        assert f"expected a field of Sealed, got $.{name}." in slot.failure(take_sealed, text).error


def take_set(payload: set[Line]) -> None: ...


def test_set_of_what_no_set_can_hold__is_refused_with_its_place(slot: Slot) -> None:
    error = slot.failure(take_set, '[{"sku": "a"}]').error
    assert (
        "PayloadError: payload: expected what a set can hold at $[0], got Line, which is not hashable. "
        "Annotate it as a list, or make its class frozen." in error
    )


def test_first_use_by_two_threads__builds_no_half_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    convert, find = converters.converter_for(Line), converters._converter
    assert convert is not None
    others: list[Any] = []

    def interrupted(annotation: Any) -> Any:
        # The type of the second field: the first one is known by now.
        if annotation is int and not others:
            others.append(None)
            with ThreadPoolExecutor(1) as pool:
                others.append(pool.submit(convert, {"sku": "a", "quantity": 2}, "$").result(60))
        return find(annotation)

    monkeypatch.setattr(converters, "_converter", interrupted)
    assert convert({"sku": "b"}, "$") == Line("b")
    assert others[1] == Line("a", 2)
