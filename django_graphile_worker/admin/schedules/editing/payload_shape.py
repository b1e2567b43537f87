"""What the payload of a task consists of: the fields of its class, or the arguments of a Django task."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass
from importlib import import_module
from inspect import Parameter
from typing import Any

from django_graphile_worker import task_functions
from django_graphile_worker.registry import Task
from django_graphile_worker.worker.execution.binding import bind, resolved_annotation
from django_graphile_worker.worker.typed_payloads.converters import init_fields

# Takes a payload, and raises PayloadError if the payload does not fit.
Check = Callable[[Any], None]

NO_DEFAULT: Any = object()


@dataclass(frozen=True, slots=True)
class Argument:
    """A key of the payload."""

    name: str
    type: Any
    is_required: bool
    # NO_DEFAULT if there is none, or if a function makes it.
    default: Any = NO_DEFAULT
    label: str = ""
    help_text: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """The keys of a payload, or of the keyword arguments in the payload of a Django task."""

    arguments: tuple[Argument, ...]
    is_call: bool = False


def shape_of(task: Task[Any, Any]) -> Shape | None:
    """Return what a task takes; None if any JSON may be right."""
    try:
        django_task = _django_task(task)
        if django_task is not None:
            return Shape(tuple(_arguments_of_call(django_task)), is_call=True)
        signature = task_functions.read_signature(task.function)
        if not signature.takes_payload:
            return Shape(())
        annotation = _annotation(task)
        found = None if annotation is None else _arguments_of(_without_none(annotation))
    except Exception:  # annotations and defaults are code of the project, which may raise anything
        return None
    return None if found is None else Shape(tuple(found))


def check_of(task: Task[Any, Any]) -> Check | None:
    """Return the check that a worker makes before it calls the task; None if it makes none."""
    if _django_task(task) is not None:
        return None
    convert = bind(task.function).convert
    return None if convert is None else lambda payload: convert(payload, "$")


def _django_task(task: Any) -> Any:
    return vars(task).get("django_task")


def _annotation(task: Task[Any, Any]) -> Any:
    parameter = task_functions.read_signature(task.function).payload
    if parameter is None or parameter.annotation is Parameter.empty:
        return None
    return resolved_annotation(task.function, parameter)


def _without_none(annotation: Any) -> Any:
    """Return the class of ``Receipt | None`` and of ``Annotated[Receipt, ...]``."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _without_none(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = [each for each in typing.get_args(annotation) if each is not type(None)]
        return _without_none(members[0]) if len(members) == 1 else annotation
    return annotation


def _arguments_of(annotation: Any) -> list[Argument] | None:
    kind: Any = typing.get_origin(annotation) or annotation
    if not isinstance(kind, type):
        return None
    pydantic, msgspec = sys.modules.get("pydantic"), sys.modules.get("msgspec")
    if pydantic is not None and issubclass(kind, pydantic.RootModel):
        return None
    if pydantic is not None and issubclass(kind, pydantic.BaseModel):
        return _of_pydantic(kind)
    if msgspec is not None and issubclass(kind, msgspec.Struct):
        return list(_of_msgspec(kind, msgspec))
    if dataclasses.is_dataclass(kind):
        return list(_of_dataclass(annotation, kind))
    return list(_of_typed_dict(kind)) if typing.is_typeddict(kind) else None


def _of_dataclass(annotation: Any, kind: Any) -> Iterator[Argument]:
    for name, field in init_fields(annotation).items():
        declared = kind.__dataclass_fields__[name]
        help_text = declared.metadata.get("help_text", "")
        default = NO_DEFAULT if declared.default is MISSING else declared.default
        yield Argument(name, field.type, field.is_required, default, help_text=str(help_text))


def _of_pydantic(kind: Any) -> list[Argument] | None:
    found = []
    for name, field in kind.model_fields.items():
        alias = field.validation_alias if field.validation_alias is not None else field.alias
        if alias is not None and not isinstance(alias, str):
            # The value may be at several places of the payload.
            return None
        has_default = not field.is_required() and field.default_factory is None
        found.append(
            Argument(
                alias or name,
                field.annotation,
                field.is_required(),
                field.default if has_default else NO_DEFAULT,
                label=field.title or "",
                help_text=field.description or "",
            )
        )
    return found


def _of_msgspec(kind: Any, msgspec: Any) -> Iterator[Argument]:
    # The package is optional, and does not load this module with it.
    structs = import_module("msgspec.structs")
    if kind.__struct_config__.array_like:
        raise TypeError("the payload is an array")
    for field in structs.fields(kind):
        default = NO_DEFAULT if field.default is msgspec.NODEFAULT else field.default
        yield Argument(field.encode_name, field.type, field.required, default)


def _of_typed_dict(kind: Any) -> Iterator[Argument]:
    for name, hint in typing.get_type_hints(kind).items():
        yield Argument(name, hint, name in kind.__required_keys__)


def _arguments_of_call(task: Any) -> Iterator[Argument]:
    """Yield the arguments of a Django task; raise TypeError for arguments that have no names."""
    hints = typing.get_type_hints(task.func)
    parameters = list(inspect.signature(task.func).parameters.values())
    for parameter in parameters[1:] if task.takes_context else parameters:
        if parameter.kind not in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
            raise TypeError(f"{parameter} has no name")
        has_default = parameter.default is not Parameter.empty
        default = parameter.default if has_default else NO_DEFAULT
        yield Argument(parameter.name, hints.get(parameter.name, Any), not has_default, default)
