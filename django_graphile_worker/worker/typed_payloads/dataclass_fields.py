"""The arguments of a dataclass's constructor: its own fields, inherited fields, and ``InitVar`` pseudo-fields."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Mapping
from dataclasses import MISSING, InitVar, dataclass
from typing import Any, TypeVar

# The arguments of a generic class, by type variable.
TypeArguments = Mapping[Any, Any]


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
