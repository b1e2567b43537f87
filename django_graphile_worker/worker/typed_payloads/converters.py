"""The converter for an annotation, which converts JSON to the type of a task's payload.

``converter_for()`` builds it from converters of single values, of containers and of dataclasses. Their errors name the
place of a value that does not fit, and never show the value: it may be a secret, and the error is stored and logged.
Its place and its type are enough to correct it.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import inspect
import json
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, InitVar, dataclass
from typing import Any, Literal, NamedTuple, TypeVar, Union

from django.utils.dateparse import parse_duration

from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.payloads import key_step
from django_graphile_worker.redaction import is_secret
from django_graphile_worker.text import did_you_mean
from django_graphile_worker.worker.typed_payloads.third_party_models import converter_for_model, is_model

# A converter takes a value and the path to it, like $.items[3].name; it raises PayloadError.
Converter = Callable[[Any, str], Any]

# The names of JSON types in messages.
JSON_NAMES: dict[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}
# By type: the function that makes the container from a list.
CONTAINERS: dict[Any, Callable[[Any], Any]] = {list: list, tuple: tuple, set: set, frozenset: frozenset}
# The arguments of a generic class, by type variable.
TypeArguments = Mapping[Any, Any]


class Fields(NamedTuple):
    """The fields with which a dataclass is constructed."""

    converters: dict[str, Converter]
    required: frozenset[str]


def converter_for(annotation: Any) -> Converter | None:
    """Return a converter for the annotation; None if the decoded JSON already has the annotated type."""
    convert = _converter(annotation)
    return convert if _has_model(annotation) else None


def _has_model(annotation: Any) -> bool:
    """Return True if the annotation names a model. Plain payloads (dict, TypedDict, list[int] …) stay unchanged."""
    if _is_model(annotation):
        return True
    return any(_has_model(part) for part in typing.get_args(annotation) if part is not ...)


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
        return one_of(typing.get_args(annotation))
    if _is_model(annotation):
        return converter_for_model(annotation) or _dataclass(annotation)
    if origin is not None:
        return _container(origin, typing.get_args(annotation))
    if isinstance(annotation, typing.NewType):
        return _converter(annotation.__supertype__)
    if isinstance(annotation, type):
        return _class_converter(annotation)
    return anything


def _class_converter(kind: type) -> Converter:
    if issubclass(kind, enum.Enum):
        return parsed_by(kind, f"one of {', '.join(repr(member.value) for member in kind)}")
    if kind in PARSERS:
        return parsed_by(*PARSERS[kind])
    if kind in CONTAINERS:
        return _container(kind, ())
    # Any is a class since Python 3.11; a TypedDict is a class that isinstance() does not accept.
    if kind in (object, Any) or typing.is_typeddict(kind):
        return anything
    return instance_of(kind)


def _container(origin: Any, arguments: tuple[Any, ...]) -> Converter:
    if origin is dict or origin is Mapping:
        key, value = arguments if len(arguments) == 2 else (str, Any)
        return mapping_of(key_of(_converter(key)), _converter(value))
    if origin is tuple and arguments and arguments[-1] is not ...:
        return fixed_tuple_of([_converter(argument) for argument in arguments])
    if origin in CONTAINERS or origin is Sequence:
        item = _converter(arguments[0]) if arguments else anything
        return array_of(CONTAINERS.get(origin, list), item)
    return anything


def _union(members: tuple[Any, ...]) -> Converter:
    takes_none = type(None) in members
    converters = [_converter(member) for member in members if member is not type(None)]

    def convert(value: Any, path: str) -> Any:
        if value is None and takes_none:
            return None
        errors: list[PayloadError] = []
        for convert_member in converters:
            try:
                return convert_member(value, path)
            except PayloadError as error:
                errors.append(error)
        # The member whose error is deepest in the value is most likely the intended type.
        raise max(errors, key=lambda error: len(error.path))

    return convert


def _dataclass(annotation: Any) -> Converter:
    kind: type = typing.get_origin(annotation) or annotation
    fields: Fields | None = None

    def convert(value: Any, path: str) -> Any:
        nonlocal fields
        if not isinstance(value, dict):
            raise misfit(path, f"an object ({kind.__name__})", value)
        if fields is None:
            # On first use, so that a class may refer to itself; in one assignment, because other threads may read it.
            fields = _field_converters(annotation)
        converters, required = fields
        for name in required - value.keys():
            raise missing_field(kind, f"{path}.{name}")
        for name in value.keys() - converters.keys():
            raise unknown_field(kind, next(key_paths(path, [name])), name, list(converters))
        return kind(**{name: converters[name](item, f"{path}.{name}") for name, item in value.items()})

    return convert


def _field_converters(annotation: Any) -> Fields:
    """Return the converters of the fields of a dataclass."""
    found = init_fields(annotation)
    return Fields(
        {name: _converter(field.type) for name, field in found.items()},
        frozenset(name for name, field in found.items() if field.is_required),
    )


# Single values, also of types that are a string or a number in JSON.


def anything(value: Any, path: str) -> Any:
    return value


def instance_of(kind: type) -> Converter:
    accepted: tuple[type, ...] = (int, float) if kind is float else (kind,)

    def convert(value: Any, path: str) -> Any:
        # In Python, True and False are numbers; in JSON they are not.
        is_bool_for_number = isinstance(value, bool) and kind in (int, float)
        if not isinstance(value, accepted) or is_bool_for_number:
            raise misfit(path, JSON_NAMES.get(kind, kind.__name__), value)
        return value

    return convert


def parsed_by(parse: Callable[[Any], Any], expected: str) -> Converter:
    def convert(value: Any, path: str) -> Any:
        try:
            parsed = parse(value)
        except (ValueError, TypeError, ArithmeticError):
            parsed = None
        if parsed is None:
            raise misfit(path, expected, value, other_value(value))
        return parsed

    return convert


def one_of(choices: tuple[Any, ...]) -> Converter:
    def convert(value: Any, path: str) -> Any:
        if not any(value == choice and type(value) is type(choice) for choice in choices):
            raise misfit(path, f"one of {', '.join(map(repr, choices))}", value, other_value(value))
        return value

    return convert


def _only_text(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: parse(value) if isinstance(value, str) else None


def _decimal(value: Any) -> decimal.Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return decimal.Decimal(str(value))


def _duration(value: Any) -> datetime.timedelta | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return datetime.timedelta(seconds=value)
    return parse_duration(value) if isinstance(value, str) else None


# For each class: the function that parses a value (it returns None, or raises, if it cannot), and its name in messages.
PARSERS: dict[type, tuple[Callable[[Any], Any], str]] = {
    datetime.datetime: (_only_text(datetime.datetime.fromisoformat), "a date and time in ISO 8601"),
    datetime.date: (_only_text(datetime.date.fromisoformat), "a date in ISO 8601"),
    datetime.time: (_only_text(datetime.time.fromisoformat), "a time in ISO 8601"),
    datetime.timedelta: (_duration, "a duration (seconds, or as Django writes it)"),
    decimal.Decimal: (_decimal, "a decimal number"),
    uuid.UUID: (_only_text(uuid.UUID), "a UUID"),
}


# Arrays and objects, built from the converters of their items.


def mapping_of(convert_key: Converter, convert_value: Converter) -> Converter:
    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise misfit(path, "an object", value)
        return {
            convert_key(key, key_path): convert_value(item, key_path)
            for (key, item), key_path in zip(value.items(), key_paths(path, value), strict=True)
        }

    return convert


def key_of(convert_value: Converter) -> Converter:
    """Return a converter of keys.

    JSON has only strings as keys; json.dumps() writes a number, true, false or null as the text of its value.
    """

    def convert(key: Any, path: str) -> Any:
        try:
            return convert_value(key, path)
        except PayloadError as error:
            message = str(error)
        try:
            return convert_value(_scalar(key), path)
        except ValueError:
            raise PayloadError(f"{message.removesuffix('.')} as the key.", path=path) from None

    return convert


def _scalar(text: str) -> Any:
    value = json.loads(text)
    if isinstance(value, dict | list):
        raise ValueError("a container")
    return value


def array_of(make: Callable[[Any], Any], convert_item: Converter) -> Converter:
    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, list):
            raise misfit(path, "an array", value)
        items = [convert_item(item, f"{path}[{index}]") for index, item in enumerate(value)]
        try:
            return make(items)
        except TypeError:
            index = next(index for index, item in enumerate(items) if not _is_hashable(item))
            raise unhashable(f"{path}[{index}]", items[index]) from None

    return convert


def _is_hashable(item: Any) -> bool:
    try:
        hash(item)
    except TypeError:
        return False
    return True


def fixed_tuple_of(converters: list[Converter]) -> Converter:
    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, list) or len(value) != len(converters):
            got = f"{len(value)}" if isinstance(value, list) else ""
            raise misfit(path, f"an array of {len(converters)} items", value, got)
        return tuple(
            convert_item(item, f"{path}[{index}]")
            for index, (convert_item, item) in enumerate(zip(converters, value, strict=True))
        )

    return convert


# The arguments of a dataclass's constructor: its own fields, inherited fields, and ``InitVar`` pseudo-fields.


@dataclass(frozen=True, slots=True, kw_only=True)
class InitField:
    """One argument of a dataclass's constructor."""

    type: Any
    is_required: bool


def init_fields(annotation: Any) -> dict[str, InitField]:
    """Return the arguments by name, with the type variables of ``Page[Item]`` replaced.

    Raises NameError for a type that cannot be resolved.
    """
    kind = typing.get_origin(annotation) or annotation
    arguments = _type_arguments(kind, typing.get_args(annotation))
    found: dict[str, InitField] = {}
    for name, hint in typing.get_type_hints(kind).items():
        field = kind.__dataclass_fields__.get(name)
        if field is None or not _is_argument(kind, field, hint):
            continue
        is_required = field.default is MISSING and field.default_factory is MISSING
        resolved = _replace(_without_init_var(hint), arguments.get(_owner(kind, name), {}))
        found[name] = InitField(type=resolved, is_required=is_required)
    return found


def _is_argument(kind: Any, field: dataclasses.Field[Any], hint: Any) -> bool:
    is_init_var = hint is InitVar or isinstance(hint, InitVar)
    return is_init_var or (field.init and field in dataclasses.fields(kind))


def _without_init_var(hint: Any) -> Any:
    if hint is InitVar:
        return Any
    return hint.type if isinstance(hint, InitVar) else hint


def _owner(kind: type, name: str) -> type:
    """Return the class that annotates the field: the annotation uses the type variables of that class."""
    return next(each for each in kind.__mro__ if name in inspect.get_annotations(each))


def _type_arguments(kind: Any, arguments: tuple[Any, ...]) -> dict[type, TypeArguments]:
    """Return the arguments of the type variables, for a class and each of its base classes."""
    own = dict(zip(getattr(kind, "__parameters__", ()), arguments, strict=False))
    found: dict[type, TypeArguments] = {kind: own}
    for base in getattr(kind, "__orig_bases__", kind.__bases__):
        origin = typing.get_origin(base) or base
        if isinstance(origin, type) and origin is not object:
            found |= _type_arguments(origin, tuple(_replace(argument, own) for argument in typing.get_args(base)))
    return found


def _replace(hint: Any, arguments: TypeArguments) -> Any:
    """Return the hint with its type variables replaced. A variable without an argument becomes its bound, or Any."""
    if isinstance(hint, TypeVar):
        return arguments.get(hint, hint.__bound__ or Any)
    variables = getattr(hint, "__parameters__", ())
    if not variables or isinstance(hint, type):
        return hint
    return hint[tuple(_replace(variable, arguments) for variable in variables)]


# Errors.


def misfit(path: str, expected: str, value: Any, got: str = "") -> PayloadError:
    """Return the error for a value of the wrong type. ``got`` describes the value if its type is not enough."""
    got = got or ("null" if value is None else JSON_NAMES.get(type(value), type(value).__name__))
    return PayloadError(f"payload: expected {expected} at {path}, got {got}.", path=path)


def other_value(value: Any) -> str:
    """Return the words of a message for an unexpected string; an empty string for values of other types."""
    return "another string" if isinstance(value, str) else ""


def missing_field(kind: type, path: str) -> PayloadError:
    return PayloadError(f"payload: expected the field {path} ({kind.__name__}), got none.", path=path)


def unknown_field(kind: type, path: str, name: str, known: list[str]) -> PayloadError:
    way_out = did_you_mean(name, known) or f"It has {', '.join(known) or 'no fields'}."
    return PayloadError(f"payload: expected a field of {kind.__name__}, got {path}. {way_out}", path=path)


def unhashable(path: str, item: Any) -> PayloadError:
    return PayloadError(
        f"payload: expected a hashable item at {path}, got {type(item).__name__}, which is not hashable. "
        "Annotate it as a list, or make its class frozen.",
        path=path,
    )


def key_paths(path: str, keys: Iterable[str]) -> Iterator[str]:
    """Return the paths to keys of the payload. Below a secret key the keys may be secret, too, and are hidden."""
    is_hidden = is_secret(path)
    return (f"{path}[…]" if is_hidden else path + key_step(key) for key in keys)
