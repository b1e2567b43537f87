"""Inspects task functions: which parameters a worker fills, and whether a function is async or a generator."""

from __future__ import annotations

import functools
import inspect
import itertools
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from asgiref.sync import iscoroutinefunction

from django_graphile_worker.exceptions import InvalidTypeError

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_OPEN = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_GENERATORS = (types.GeneratorType, types.AsyncGeneratorType)
# Names and types by which a second parameter shows that it is meant for helpers.
_HELPERS_NAMES = frozenset({"helpers", "helper", "context", "ctx"})
_HELPERS_TYPES = frozenset({"Helpers", "Any", "object"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The parameters that a worker fills."""

    payload: Parameter | None = None
    takes_payload: bool = True
    helpers: Parameter | None = None

    @property
    def helpers_keyword(self) -> str | None:
        is_keyword = self.helpers is not None and self.helpers.kind is Parameter.KEYWORD_ONLY
        return self.helpers.name if self.helpers is not None and is_keyword else None

    @property
    def may_mistake_helpers(self) -> bool:
        """Whether the second parameter gets helpers although neither its name nor its annotation shows that."""
        parameter = self.helpers
        if parameter is None or parameter.name.startswith("_") or parameter.name.lower() in _HELPERS_NAMES:
            return False
        return _annotation_name(parameter) not in _HELPERS_TYPES


def read_signature(function: Callable[..., Any]) -> Signature:
    """Return the parameters that a worker fills: (payload), (payload, helpers) or none; raise for others."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # Some functions written in C have no signature: they get the payload.
        return Signature()
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    helpers = _helpers(parameters, positional)
    _refuse_others(function, parameters, [*positional[:1], helpers])
    if not positional:
        takes_any = any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters)
        return Signature(takes_payload=takes_any)
    return Signature(payload=positional[0], helpers=helpers)


def innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function inside partials and decorators."""
    unwrapped: Callable[..., Any] = inspect.unwrap(_without_partials(function))
    return unwrapped


def source_of(function: Callable[..., Any]) -> tuple[str, int]:
    """Return the file and the first line of a function, or of the ``__call__`` of a callable object."""
    found = innermost(function)
    code = getattr(found, "__code__", None) or getattr(_call_of(found), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else ("unknown", 0)


def is_async_function(function: Callable[..., Any]) -> bool:
    """Return whether calling the function returns a coroutine."""
    function = _without_partials(function)
    return iscoroutinefunction(function) or iscoroutinefunction(_call_of(function))


def is_generator_function(function: Callable[..., Any]) -> bool:
    """Return whether calling the function only returns a generator, and runs nothing of its body."""
    function = _without_partials(function)
    return any(
        inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in (function, _call_of(function))
    )


def is_generator(result: object) -> bool:
    """Return whether a result is a generator, whose body has not run."""
    return isinstance(result, _GENERATORS)


# Results that run code only when they are iterated.
UNRUN = (*_GENERATORS, map, filter, zip, itertools.starmap, itertools.chain)


def _without_partials(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _call_of(function: Callable[..., Any]) -> Any:
    """Return an object's ``__call__``, which may be async or a generator although the object is not a function."""
    return getattr(type(function), "__call__", None)  # noqa: B004 - the method itself is needed


def _helpers(parameters: Sequence[Parameter], positional: Sequence[Parameter]) -> Parameter | None:
    for parameter in parameters:
        if parameter.kind is Parameter.KEYWORD_ONLY and parameter.name == "helpers":
            return parameter
    return positional[1] if len(positional) > 1 and _wants_helpers(positional[1]) else None


def _wants_helpers(parameter: Parameter) -> bool:
    """Return whether a second parameter gets helpers: if it has a default, only by its name or annotation."""
    return (
        parameter.default is Parameter.empty or parameter.name == "helpers" or _annotation_name(parameter) == "Helpers"
    )


def _annotation_name(parameter: Parameter) -> str:
    """Return the last part of an annotation, ``Helpers``, however it was imported and whether or not it is a string."""
    annotation = parameter.annotation
    if annotation is Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__qualname__", str(annotation))
    return str(text).strip("'\" ").rpartition(".")[2]


def _refuse_others(
    function: Callable[..., Any], parameters: Sequence[Parameter], filled: Sequence[Parameter | None]
) -> None:
    for parameter in parameters:
        is_optional = parameter.default is not Parameter.empty or parameter.kind in _OPEN
        if parameter not in filled and not is_optional:
            raise InvalidTypeError(
                f"A task takes (payload) or (payload, helpers), but "
                f"{getattr(function, '__qualname__', function)!s}{inspect.signature(function)} "
                f"also needs {parameter.name!r}. Put it into the payload."
            )
