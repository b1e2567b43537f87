"""The converter for an annotation, which converts JSON to the type of a task's payload."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Union

from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.worker.typed_payloads.containers import (
    CONTAINERS,
    array_of,
    fixed_tuple_of,
    key_of,
    mapping_of,
)
from django_graphile_worker.worker.typed_payloads.dataclass_fields import init_fields
from django_graphile_worker.worker.typed_payloads.errors import (
    Converter,
    key_paths,
    misfit,
    missing_field,
    unknown_field,
)
from django_graphile_worker.worker.typed_payloads.scalars import PARSERS, anything, instance_of, one_of, parsed_by
from django_graphile_worker.worker.typed_payloads.third_party_models import converter_for_model, is_model


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
            fields = field_converters(annotation)
        converters, required = fields
        for name in required - value.keys():
            raise missing_field(kind, f"{path}.{name}")
        for name in value.keys() - converters.keys():
            raise unknown_field(kind, next(key_paths(path, [name])), name, list(converters))
        return kind(**{name: converters[name](item, f"{path}.{name}") for name, item in value.items()})

    return convert


def field_converters(annotation: Any) -> Fields:
    """Return the converters of the fields of a dataclass."""
    found = init_fields(annotation)
    return Fields(
        {name: _converter(field.type) for name, field in found.items()},
        frozenset(name for name, field in found.items() if field.is_required),
    )
