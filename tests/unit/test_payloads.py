from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import sys
import uuid
from typing import Any

import msgspec
import pydantic
import pytest
from django.contrib.auth.models import User
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy
from hypothesis import given
from hypothesis import strategies as st

from django_graphile_worker import payloads
from django_graphile_worker.exceptions import PayloadError

LIMIT = 16 * 1_048_576


def encode(payload: Any, max_size: int = LIMIT) -> Any:
    return json.loads(payloads.encode(payload, max_size=max_size))


def nested(levels: int) -> list[Any]:
    outermost: list[Any] = []
    innermost = outermost
    for _ in range(levels - 1):
        innermost.append([])
        innermost = innermost[0]
    return outermost


def cycle() -> dict[str, Any]:
    payload: dict[str, Any] = {"a": [1, {}]}
    payload["a"][1]["b"] = payload["a"]
    return payload


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda children: (
        st.lists(children) | st.dictionaries(st.text(st.characters(codec="utf-8", exclude_characters="\x00")), children)
    ),
    max_leaves=20,
)


@given(json_values)
def test_what_json_can_hold_comes_back_as_it_was(payload: Any) -> None:
    assert encode(payload) == payload


@dataclasses.dataclass(frozen=True, slots=True)
class Receipt:
    order: int
    when: datetime.date | None = None
    lines: tuple[Receipt, ...] = ()
    extra: Any = None
    seal: str = dataclasses.field(init=False, default="wax")


class Model(pydantic.BaseModel):
    order: int


class Page(pydantic.BaseModel):
    since: datetime.date = pydantic.Field(alias="from")
    items: list[Model]


class Login(pydantic.BaseModel):
    password: pydantic.SecretStr


class Struct(msgspec.Struct):
    order: int


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (datetime.datetime(2026, 3, 1, 12, 30, 1, 123456, datetime.UTC), "2026-03-01T12:30:01.123Z"),
        (datetime.date(2026, 3, 1), "2026-03-01"),
        (datetime.time(12, 30), "12:30:00"),
        (datetime.timedelta(days=1, seconds=2), "P1DT00H00M02S"),
        (decimal.Decimal("10.50"), "10.50"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (gettext_lazy("Saturday"), "Saturday"),
        ((1, 2), [1, 2]),
        (Colour.RED, "red"),
        ({1: "a", None: "c", 1.5: "d"}, {"1": "a", "null": "c", "1.5": "d"}),
        ("\\u0000 is only spelt here", "\\u0000 is only spelt here"),
        ("ü 🎉", "ü 🎉"),
    ],
)
def test_values_are_stored_as_djangos_encoder_writes_them(value: Any, stored: Any) -> None:
    assert encode({"value": value}) == {"value": stored}


BAD_PAYLOADS = [
    (
        {"a": [1, 2, 3, {"b": float("nan")}]},
        "$.a[3].b",
        "payload: expected a finite number, got nan at $.a[3].b.",
    ),
    ([float("-inf")], "$[0]", "payload: expected a finite number, got -inf at $[0]."),
    (
        {"names": ["ok", "x\x00"]},
        "$.names[1]",
        "payload: PostgreSQL cannot store a NUL character at position 1 at $.names[1].",
    ),
    (
        {"a b": {"c": "x\ud800"}},
        '$["a b"].c',
        ("payload: PostgreSQL cannot store half a surrogate pair ('\\ud800') at position 1 at $[\"a b\"].c."),
    ),
    (
        {"a": {"k\x00": 1}},
        "$.a",
        ("payload: PostgreSQL cannot store a NUL character at position 1 in the key 'k\\x00' at $.a."),
    ),
    (
        {"a": {(1, 2): 3}},
        "$.a",
        "payload: expected strings as keys, got tuple at $.a.",
    ),
    ({SimpleLazyObject(lambda: "b"): 1}, "$", "payload: expected strings as keys, got SimpleLazyObject at $."),
    ({float("inf"): 1}, "$", "payload: expected finite numbers as keys, got inf at $."),
    (
        cycle(),
        "$.a[1].b",
        "payload: the value contains itself: it refers back to $.a at $.a[1].b.",
    ),
    (
        {"tags": {"a", "b"}},
        "$.tags",
        "payload: expected a value that JSON can hold, got set (pass a list) at $.tags.",
    ),
    (
        Receipt(order=1, extra={"b": [b"x"]}),
        "$.extra.b[0]",
        ("payload: expected a value that JSON can hold, got bytes (pass text, or the URL of a file) at $.extra.b[0]."),
    ),
    ({"kind": Receipt}, "$.kind", "payload: expected a value that JSON can hold, got type at $.kind."),
    ({"kind": Model}, "$.kind", "payload: expected a value that JSON can hold, got ModelMetaclass at $.kind."),
    (
        {"customer": User(pk=7)},
        "$.customer",
        (
            "payload: expected a value that JSON can hold, got User (pass its pk, and get the row in the task: it may "
            "change until then) at $.customer."
        ),
    ),
    (
        {"customers": User.objects.none()},
        "$.customers",
        (
            "payload: expected a value that JSON can hold, got QuerySet (pass the pks: list(queryset.values_list('pk', "
            "flat=True))) at $.customers."
        ),
    ),
    (
        {"login": Login(password=pydantic.SecretStr("swordfish"))},
        "$.login",
        (
            "payload: expected a value that JSON can hold, got Login (pydantic hides the secret at $.password, so it "
            "would be lost: add a serializer to the field, or read the secret in the task) at $.login."
        ),
    ),
    (
        {"when": [b"x"]},
        "$.when[0]",
        "payload: expected a value that JSON can hold, got bytes (pass text, or the URL of a file) at $.when[0].",
    ),
    (
        {"at": datetime.time(1, tzinfo=datetime.UTC)},
        "$.at",
        "payload: expected a value that JSON can hold, got time (JSON can't represent timezone-aware times.) at $.at.",
    ),
    ({"n": 10**4300}, "$.n", "payload: the number has more than 4300 digits at $.n."),
    (
        {True: {None: {"é": {}.keys()}}},
        "$.true.null.é",
        "payload: expected a value that JSON can hold, got dict_keys at $.true.null.é.",
    ),
]


@pytest.mark.parametrize(("payload", "path", "message"), BAD_PAYLOADS)
def test_what_cannot_be_stored_is_refused_with_its_place(payload: Any, path: str, message: str) -> None:
    with pytest.raises(PayloadError) as refused:
        payloads.encode(payload, max_size=LIMIT)
    assert str(refused.value) == message
    assert refused.value.path == path


def test_500_levels_are_stored_and_can_be_read_back() -> None:
    assert encode(nested(500)) == nested(500)


@pytest.mark.parametrize("levels", [501, 990, 100_000])
def test_deeper_nesting_is_refused(levels: int) -> None:
    with pytest.raises(PayloadError, match=r"^payload: the value is nested more than 500 levels deep at \$\[0\]"):
        payloads.encode(nested(levels), max_size=LIMIT)


def test_brackets_in_strings_neither_count_as_nesting_nor_hide_it() -> None:
    assert encode(["[{" * 1000, '"]}' * 1000]) == ["[{" * 1000, '"]}' * 1000]
    hidden: list[Any] = ["[", "]"]
    for _ in range(500):
        hidden = ["]", hidden, '"', "["]
    with pytest.raises(PayloadError, match="500 levels"):
        payloads.encode(hidden, max_size=LIMIT)


def test_a_payload_of_the_largest_size_is_stored__counted_in_bytes() -> None:
    assert encode("é" * 10, max_size=22) == "é" * 10
    with pytest.raises(PayloadError):
        payloads.encode("é" * 10, max_size=21)


def test_a_payload_that_is_too_large_is_refused_with_its_heaviest_part() -> None:
    payload = {"small": [1, 2], "files": [{"name": "a", "content": "x" * 1000}, {"name": "b"}]}
    with pytest.raises(PayloadError) as refused:
        payloads.encode(payload, max_size=500)
    assert str(refused.value) == (
        "payload: 1064 bytes of JSON exceed the limit of 500, most of them at $.files[0].content. Keep large "
        'data elsewhere and pass its URL, or raise GRAPHILE_WORKER["MAX_PAYLOAD_SIZE"].'
    )
    assert refused.value.path == "$.files[0].content"


def test_a_long_path_is_shortened_in_the_message_only() -> None:
    payload: Any = {1, 2}
    for _ in range(100):
        payload = {"a_long_name": payload}
    with pytest.raises(PayloadError) as refused:
        payloads.encode(payload, max_size=LIMIT)
    assert len(str(refused.value)) < 300
    assert refused.value.path == "$" + ".a_long_name" * 100


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, "1" * (sys.get_int_max_str_digits() + 1)])
def test_what_python_cannot_decode_comes_as_its_text(text: str) -> None:
    payload = payloads.decode_leniently(text)
    assert isinstance(payload, payloads.RawPayload)
    assert payload == text


def test_dataclass__is_written_as_the_object_of_what_it_is_made_with() -> None:
    receipt = Receipt(1, datetime.date(2026, 1, 2), (Receipt(2), Receipt(3)))
    nothing: dict[str, Any] = {"when": None, "lines": [], "extra": None}
    written = {
        "order": 1,
        "when": "2026-01-02",
        "lines": [{"order": 2} | nothing, {"order": 3} | nothing],
        "extra": None,
    }
    assert json.loads(payloads.encode(receipt, max_size=10_000)) == written
    assert json.loads(payloads.encode({"all": [receipt]}, max_size=10_000)) == {"all": [written]}


def test_models_of_pydantic_and_msgspec__are_written_as_their_tasks_read_them() -> None:
    page = Page.model_validate({"from": "2026-01-02", "items": [{"order": 1}]})
    written = json.loads(payloads.encode({"page": page}, max_size=LIMIT))
    assert written == {"page": {"from": "2026-01-02", "items": [{"order": 1}]}}
    assert Page.model_validate(written["page"]) == page
    assert json.loads(payloads.encode([Struct(order=1)], max_size=LIMIT)) == [{"order": 1}]
