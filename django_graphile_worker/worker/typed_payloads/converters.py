"""JSON values to the types a task asked for; a value that does not fit is named by its place."""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Union

from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.payloads import key_step
from django_graphile_worker.redaction import is_secret
from django_graphile_worker.suggestions import did_you_mean
from django_graphile_worker.worker.typed_payloads.dataclass_fields import ingredients
from django_graphile_worker.worker.typed_payloads.models import Converter, converter_for_model, is_model
from django_graphile_worker.worker.typed_payloads.scalars import PARSERS


class _Shape(NamedTuple):
    """What a dataclass is made with."""

    converters: dict[str, Converter]
    required: frozenset[str]


def converter_for(annotation: Any) -> Converter | None:
    """How to make what the annotation names out of JSON; None when JSON has it already."""
    convert = _converter(annotation)
    return convert if _is_worth_it(annotation) else None


def _is_worth_it(annotation: Any) -> bool:
    """Plain payloads (dict, Any, TypedDict, list[int] …) stay as they came: only models are made."""
    if _is_model(annotation):
        return True
    return any(_is_worth_it(part) for part in typing.get_args(annotation) if part is not ...)


def _is_model(annotation: Any) -> bool:
    kind = typing.get_origin(annotation) or annotation
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or is_model(kind))


def _converter(annotation: Any) -> Converter:
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _converter(typing.get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return _union(typing.get_args(annotation))
    if origin is Literal:
        return _literal(typing.get_args(annotation))
    if _is_model(annotation):
        return converter_for_model(annotation) or _dataclass(annotation)
    if origin is not None:
        return _container(origin, typing.get_args(annotation))
    if isinstance(annotation, typing.NewType):
        return _converter(annotation.__supertype__)
    if isinstance(annotation, type):
        return _class_converter(annotation)
    return _anything


def _class_converter(kind: type) -> Converter:
    if issubclass(kind, enum.Enum):
        return _parsed(kind, kind, f"one of {', '.join(repr(member.value) for member in kind)}")
    if kind in PARSERS:
        parse, expected = PARSERS[kind]
        return _parsed(kind, parse, expected)
    if kind in _CONTAINERS:
        return _container(kind, ())
    # Any is a class since Python 3.11; a TypedDict is one that isinstance refuses.
    if kind in (object, Any) or typing.is_typeddict(kind):
        return _anything
    return _instance(kind)


def _anything(value: Any, path: str) -> Any:
    return value


def _instance(kind: type) -> Converter:
    accepted: tuple[type, ...] = (int, float) if kind is float else (kind,)

    def convert(value: Any, path: str) -> Any:
        is_number_by_accident = isinstance(value, bool) and kind in (int, float)
        if not isinstance(value, accepted) or is_number_by_accident:
            raise _misfit(path, _JSON_NAMES.get(kind, kind.__name__), value)
        return value

    return convert


def _parsed(kind: type, parse: Callable[[Any], Any], expected: str) -> Converter:
    def convert(value: Any, path: str) -> Any:
        try:
            parsed = parse(value)
        except (ValueError, TypeError, ArithmeticError):
            parsed = None
        if parsed is None:
            raise _misfit(path, expected, value, _another(value))
        return parsed

    return convert


def _literal(choices: tuple[Any, ...]) -> Converter:
    def convert(value: Any, path: str) -> Any:
        if not any(value == choice and type(value) is type(choice) for choice in choices):
            raise _misfit(path, f"one of {', '.join(map(repr, choices))}", value, _another(value))
        return value

    return convert


def _union(members: tuple[Any, ...]) -> Converter:
    takes_none = type(None) in members
    converters = [_converter(member) for member in members if member is not type(None)]

    def convert(value: Any, path: str) -> Any:
        if value is None and takes_none:
            return None
        complaints: list[PayloadError] = []
        for attempt in converters:
            try:
                return attempt(value, path)
            except PayloadError as complaint:
                complaints.append(complaint)
        # The one that got furthest knows best what is wrong.
        raise max(complaints, key=lambda complaint: len(complaint.path))

    return convert


def _container(origin: Any, arguments: tuple[Any, ...]) -> Converter:
    if origin is dict or origin is Mapping:
        key, value = arguments if len(arguments) == 2 else (str, Any)
        return _mapping(_key(_converter(key)), _converter(value))
    if origin is tuple and arguments and arguments[-1] is not ...:
        return _fixed_tuple([_converter(argument) for argument in arguments])
    if origin in _CONTAINERS or origin is Sequence:
        item = _converter(arguments[0]) if arguments else _anything
        return _array(_CONTAINERS.get(origin, list), item)
    return _anything


def _mapping(convert_key: Converter, convert_value: Converter) -> Converter:
    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _misfit(path, "an object", value)
        return {
            convert_key(key, way): convert_value(item, way)
            for (key, item), way in zip(value.items(), _ways(path, value), strict=True)
        }

    return convert


def _key(convert_value: Converter) -> Converter:
    """JSON knows only strings as keys; Python writes numbers, true, false and null as the text of their value."""

    def convert(key: Any, path: str) -> Any:
        try:
            return convert_value(key, path)
        except PayloadError as error:
            complaint = error
        try:
            return convert_value(_scalar(key), path)
        except ValueError:
            raise PayloadError(f"{str(complaint).removesuffix('.')} as the key.", path=path) from None

    return convert


def _scalar(text: str) -> Any:
    value = json.loads(text)
    if isinstance(value, dict | list):
        raise ValueError("a container")
    return value


def _array(make: Callable[[Any], Any], convert_item: Converter) -> Converter:
    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, list):
            raise _misfit(path, "an array", value)
        items = [convert_item(item, f"{path}[{index}]") for index, item in enumerate(value)]
        try:
            return make(items)
        except TypeError:
            raise _unhashable(path, items) from None

    return convert


def _unhashable(path: str, items: list[Any]) -> PayloadError:
    index, item = next((index, item) for index, item in enumerate(items) if not _is_hashable(item))
    return PayloadError(
        f"payload: expected what a set can hold at {path}[{index}], got {type(item).__name__}, which is not hashable. "
        "Annotate it as a list, or make its class frozen.",
        path=f"{path}[{index}]",
    )


def _is_hashable(item: Any) -> bool:
    try:
        hash(item)
    except TypeError:
        return False
    return True


def _fixed_tuple(converters: list[Converter]) -> Converter:
    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, list) or len(value) != len(converters):
            got = f"{len(value)}" if isinstance(value, list) else ""
            raise _misfit(path, f"an array of {len(converters)} items", value, got)
        return tuple(
            convert_item(item, f"{path}[{index}]")
            for index, (convert_item, item) in enumerate(zip(converters, value, strict=True))
        )

    return convert


def _dataclass(annotation: Any) -> Converter:
    kind: type = typing.get_origin(annotation) or annotation
    shape: _Shape | None = None

    def convert(value: Any, path: str) -> Any:
        nonlocal shape
        if not isinstance(value, dict):
            raise _misfit(path, f"an object ({kind.__name__})", value)
        if shape is None:
            # On first use, so that a class may refer to itself; in one piece, as other threads look on.
            shape = _shape(annotation)
        converters, required = shape
        for name in required - value.keys():
            raise PayloadError(
                f"payload: expected the field {path}.{name} ({kind.__name__}), got none.", path=f"{path}.{name}"
            )
        for name in value.keys() - converters.keys():
            raise _unknown_field(kind, next(_ways(path, [name])), name, list(converters))
        return kind(**{name: converters[name](item, f"{path}.{name}") for name, item in value.items()})

    return convert


def _shape(annotation: Any) -> _Shape:
    found = ingredients(annotation)
    return _Shape(
        {name: _converter(each.type) for name, each in found.items()},
        frozenset(name for name, each in found.items() if each.is_required),
    )


def _unknown_field(kind: type, path: str, name: str, known: list[str]) -> PayloadError:
    way_out = did_you_mean(name, known) or f"It has {', '.join(known) or 'no fields'}."
    return PayloadError(f"payload: expected a field of {kind.__name__}, got {path}. {way_out}", path=path)


def _misfit(path: str, expected: str, value: Any, got: str = "") -> PayloadError:
    """The type is enough to mend it; the value may be a secret, and the error is kept and logged."""
    got = got or ("null" if value is None else _JSON_NAMES.get(type(value), type(value).__name__))
    return PayloadError(f"payload: expected {expected} at {path}, got {got}.", path=path)


def _another(value: Any) -> str:
    """Of the right type, and yet not right."""
    return "another string" if isinstance(value, str) else ""


def _ways(path: str, keys: Iterable[str]) -> Iterator[str]:
    """The ways to keys that the payload made up; below a secret key such keys may be secret, too."""
    is_hidden = is_secret(path)
    return (f"{path}[…]" if is_hidden else path + key_step(key) for key in keys)


_JSON_NAMES: dict[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}
_CONTAINERS: dict[Any, Callable[[Any], Any]] = {list: list, tuple: tuple, set: set, frozenset: frozenset}
