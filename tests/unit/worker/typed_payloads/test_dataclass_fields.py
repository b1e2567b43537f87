"""The arguments of dataclasses: generic classes, inherited fields, InitVar."""

from __future__ import annotations

import json
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.worker.outcomes import Succeeded
from django_graphile_worker.worker.typed_payloads import converters
from tests.support.slot import Slot

received: list[Any] = []


@dataclass
class Line:
    sku: str
    quantity: int = 1


@pytest.fixture(autouse=True)
def forget() -> None:
    received.clear()


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
