"""What a dataclass is made from: its fields, those it inherits, and what only ``__post_init__`` gets."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Mapping
from dataclasses import MISSING, InitVar
from typing import Any, NamedTuple, TypeVar

Filled = Mapping[Any, Any]


class Ingredient(NamedTuple):
    """One argument of a dataclass's constructor."""

    type: Any
    is_required: bool


def ingredients(annotation: Any) -> dict[str, Ingredient]:
    """By name, with the type variables of ``Page[Item]`` filled in; raises NameError for a type that is not there."""
    kind = typing.get_origin(annotation) or annotation
    filled = _filled(kind, typing.get_args(annotation))
    found: dict[str, Ingredient] = {}
    for name, hint in typing.get_type_hints(kind).items():
        field = kind.__dataclass_fields__.get(name)
        if field is None or not _is_asked_for(kind, field, hint):
            continue
        is_required = field.default is MISSING and field.default_factory is MISSING
        found[name] = Ingredient(_fill(_without_init_var(hint), filled.get(_owner(kind, name), {})), is_required)
    return found


def _is_asked_for(kind: Any, field: dataclasses.Field[Any], hint: Any) -> bool:
    is_init_var = hint is InitVar or isinstance(hint, InitVar)
    return is_init_var or (field.init and field in dataclasses.fields(kind))


def _without_init_var(hint: Any) -> Any:
    if hint is InitVar:
        return Any
    return hint.type if isinstance(hint, InitVar) else hint


def _owner(kind: type, name: str) -> type:
    """The class whose words the annotation is in."""
    return next(each for each in kind.__mro__ if name in inspect.get_annotations(each))


def _filled(kind: Any, arguments: tuple[Any, ...]) -> dict[type, Filled]:
    """For a class and each that it inherits from: what its type variables stand for."""
    own = dict(zip(getattr(kind, "__parameters__", ()), arguments, strict=False))
    found: dict[type, Filled] = {kind: own}
    for base in getattr(kind, "__orig_bases__", kind.__bases__):
        origin = typing.get_origin(base) or base
        if isinstance(origin, type) and origin is not object:
            found |= _filled(origin, tuple(_fill(argument, own) for argument in typing.get_args(base)))
    return found


def _fill(hint: Any, filled: Filled) -> Any:
    """The hint with its type variables replaced; one that nothing fills is its bound, or anything."""
    if isinstance(hint, TypeVar):
        return filled.get(hint, hint.__bound__ or Any)
    open_variables = getattr(hint, "__parameters__", ())
    if not open_variables or isinstance(hint, type):
        return hint
    return hint[tuple(_fill(variable, filled) for variable in open_variables)]
