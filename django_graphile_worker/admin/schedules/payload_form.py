"""The form of a payload, made from what the task takes: a Django form with a field for each value, or one with JSON.

A form shows a payload only if it would also save it unchanged: each value goes through its field for that.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import inspect
import json
import sys
import types
import typing
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import Parameter
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_graphile_worker import conf, registry, task_functions
from django_graphile_worker.admin.jobs.forms import PayloadField
from django_graphile_worker.admin.jobs.job_contents import to_json
from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.payloads import encode, key_step
from django_graphile_worker.redaction import is_secret
from django_graphile_worker.worker.execution.binding import bind, resolved_annotation
from django_graphile_worker.worker.typed_payloads.converters import init_fields

PREFIX = "payload"
JSON_KEY = "json"
MAX_DEFAULT = 60
NO_DEFAULT: Any = object()
# Texts with a form of their own, which the check of the whole payload reads.
EXAMPLES = {
    datetime.datetime: "2026-05-01T12:00+02:00",
    datetime.time: "09:30",
    datetime.timedelta: "1 02:30:00",
    decimal.Decimal: "12.50",
    uuid.UUID: "123e4567-e89b-12d3-a456-426614174000",
}


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

    def values_in(self, payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the values of the keys; None if the payload has something beside them."""
        if not self.is_call:
            return payload
        values = payload.get("kwargs", {})
        is_whole = {"args": [], "kwargs": {}, **payload} == {"args": [], "kwargs": values}
        return values if is_whole and isinstance(values, Mapping) else None


def shape_of(identifier: str) -> Shape | None:
    """Return what a task takes, if each key can have a form field; None if any JSON may be right."""
    task = registry.tasks.get(identifier)
    try:
        shape = None if task is None else _shape(task)
    except Exception:  # annotations and defaults are code of the project, which may raise anything
        return None
    unusable = frozenset("\"'<>")
    names = [argument.name for argument in shape.arguments] if shape is not None else []
    is_usable = all(name and not any(letter.isspace() or letter in unusable for letter in name) for name in names)
    return shape if is_usable else None


def _shape(task: Any) -> Shape | None:
    if (django_task := vars(task).get("django_task")) is not None:
        return Shape(tuple(_arguments_of_call(django_task)), is_call=True)
    signature = task_functions.read_signature(task.function)
    if not signature.takes_payload:
        return Shape(())
    if signature.payload is None or signature.payload.annotation is Parameter.empty:
        return None
    annotation, _takes_none = _bare_type(resolved_annotation(task.function, signature.payload))
    found: Any = typing.get_origin(annotation) or annotation
    if not isinstance(found, type):
        return None
    kind: Any = found
    pydantic, msgspec = sys.modules.get("pydantic"), sys.modules.get("msgspec")
    if pydantic is not None and issubclass(kind, pydantic.BaseModel):
        return None if issubclass(kind, pydantic.RootModel) else Shape(tuple(_of_pydantic(kind)))
    if msgspec is not None and issubclass(kind, msgspec.Struct):
        return None if kind.__struct_config__.array_like else Shape(tuple(_of_msgspec(kind, msgspec)))
    if dataclasses.is_dataclass(kind):
        return Shape(tuple(_of_dataclass(annotation, kind)))
    if typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind).items()
        return Shape(tuple(Argument(name, hint, name in kind.__required_keys__) for name, hint in hints))
    return None


def _of_dataclass(annotation: Any, kind: Any) -> Iterator[Argument]:
    for name, field in init_fields(annotation).items():
        declared = kind.__dataclass_fields__[name]
        default = NO_DEFAULT if declared.default is dataclasses.MISSING else declared.default
        help_text = str(declared.metadata.get("help_text", ""))
        yield Argument(name, field.type, field.is_required, default, help_text=help_text)


def _of_pydantic(kind: Any) -> Iterator[Argument]:
    for name, field in kind.model_fields.items():
        alias = field.validation_alias if field.validation_alias is not None else field.alias
        if alias is not None and not isinstance(alias, str):
            raise TypeError("the value may be at several places of the payload")
        has_default = not field.is_required() and field.default_factory is None
        default = field.default if has_default else NO_DEFAULT
        yield Argument(
            alias or name, field.annotation, field.is_required(), default, field.title or "", field.description or ""
        )


def _of_msgspec(kind: Any, msgspec: Any) -> Iterator[Argument]:
    # The package is optional, and does not load this module with it.
    for field in import_module("msgspec.structs").fields(kind):
        default = NO_DEFAULT if field.default is msgspec.NODEFAULT else field.default
        yield Argument(field.encode_name, field.type, field.required, default)


def _arguments_of_call(task: Any) -> Iterator[Argument]:
    hints = typing.get_type_hints(task.func)
    parameters = list(inspect.signature(task.func).parameters.values())
    for parameter in parameters[1:] if task.takes_context else parameters:
        if parameter.kind not in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY):
            raise TypeError(f"{parameter} has no name")
        has_default = parameter.default is not Parameter.empty
        default = parameter.default if has_default else NO_DEFAULT
        yield Argument(parameter.name, hints.get(parameter.name, Any), not has_default, default)


def _bare_type(annotation: Any) -> tuple[Any, bool]:
    """Return a type without what wraps it, and whether it may be None."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _bare_type(typing.get_args(annotation)[0])
    if isinstance(annotation, typing.NewType):
        return _bare_type(annotation.__supertype__)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = [each for each in typing.get_args(annotation) if each is not type(None)]
        takes_none = len(members) < len(typing.get_args(annotation))
        return (_bare_type(members[0])[0] if len(members) == 1 else annotation), takes_none
    return annotation, False


def _choices(kind: Any) -> list[tuple[str, str]]:
    """Return the values of an enumeration, of ``Literal`` or of a truth value as JSON, because 1 and "1" differ."""
    pairs: list[tuple[Any, str]] = []
    if kind is bool:
        pairs = [(True, _("Yes")), (False, _("No"))]
    elif typing.get_origin(kind) is typing.Literal:
        pairs = [(value, str(value)) for value in typing.get_args(kind)]
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        pairs = [(member.value, str(getattr(member, "label", member.value))) for member in kind]
    is_simple = all(isinstance(value, str | int | float) for value, _label in pairs)
    return [(json.dumps(value), label) for value, label in pairs] if is_simple else []


def _default_text(argument: Argument, choices: Mapping[str, str]) -> str:
    """Return the value that an empty field means, unless it is nothing or a secret."""
    default = argument.default.value if isinstance(argument.default, enum.Enum) else argument.default
    if argument.is_required or default is NO_DEFAULT or is_secret(argument.name):
        return ""
    text = choices.get(to_json(default), "") if choices else ("" if default in ("", None) else str(default))
    return _("Default: %(value)s") % {"value": text[:MAX_DEFAULT]} if text else ""


def form_field(argument: Argument, value: Any = None) -> forms.Field:
    """Return the form field of a value of the payload; ``value`` is the present one."""
    kind, takes_none = _bare_type(argument.type)
    is_mandatory = argument.is_required and not takes_none
    choices = _choices(kind)
    default = _default_text(argument, dict(choices))

    def options(hint: str = "", **more: Any) -> dict[str, Any]:
        help_text = " ".join(filter(None, (argument.help_text, hint, default)))
        return {"label": argument.label or argument.name, "required": is_mandatory, "help_text": help_text, **more}

    if kind is bool and is_mandatory:
        return forms.BooleanField(**options(required=False))
    if choices:
        empty = [("", (_("Nothing (null)") if argument.is_required else default or _("Default")))]
        shown = [*([] if is_mandatory else empty), *choices]
        return forms.TypedChoiceField(coerce=json.loads, choices=shown, **options(help_text=argument.help_text))
    if kind in (int, float):
        # The error of a browser would be in its own language, and would not say which field it is about.
        widget = forms.NumberInput(attrs={"step": "1" if kind is int else "any"})
        return (forms.IntegerField if kind is int else forms.FloatField)(**options(widget=widget))
    if kind is str:
        has_lines = isinstance(value, str) and "\n" in value
        text = forms.Textarea(attrs={"rows": 4}) if has_lines else forms.TextInput(attrs={"class": "vTextField"})
        return forms.CharField(strip=False, **options(widget=text))
    if kind is datetime.date:
        day = forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
        return forms.DateField(input_formats=["%Y-%m-%d"], **options(widget=day))
    if example := EXAMPLES.get(kind):
        return forms.CharField(strip=False, **options(_("Such as %(example)s.") % {"example": example}))
    code = forms.Textarea(attrs={"rows": 3, "cols": 60, "class": "gw-code", "spellcheck": "false"})
    return PayloadField(strip=False, **options(_("JSON."), widget=code))


def _as_shown(field: forms.Field, value: Any) -> Any:
    """Return what a field shows for a value of the payload."""
    if isinstance(field, PayloadField):
        return to_json(value, indent=2) if isinstance(value, list | dict) and value else to_json(value)
    if value is None:
        return ""
    return json.dumps(value) if isinstance(field, forms.TypedChoiceField) else value


def _as_stored(value: Any) -> Any:
    """Return the value of the payload for what a field has cleaned; None if it is empty."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    # Browsers send the ends of lines as CR LF.
    return value.replace("\r\n", "\n") or None if isinstance(value, str) else value


class PayloadForm(forms.Form):
    """A field for each value, or JSON. Once it is valid, ``payload`` is what it has."""

    payload: dict[str, Any]

    def __init__(
        self, data: Any, *, task: str, payload: Mapping[str, Any], as_json: bool = False, shape: Shape | None = None
    ) -> None:
        self.task, self.shape = task, None if as_json else shape
        values = None if self.shape is None else self.shape.values_in(payload)
        if self.shape is None or values is None:
            fields: dict[str, forms.Field] = {JSON_KEY: _json_field()}
            initial: dict[str, Any] = {JSON_KEY: to_json(payload, indent=2) if payload else "{}"}
        else:
            fields = {each.name: form_field(each, values.get(each.name)) for each in self.shape.arguments}
            initial = {name: _as_shown(fields[name], value) for name, value in values.items() if name in fields}
        super().__init__(data, prefix=PREFIX, initial=initial)
        self.fields.update(fields)

    @property
    def is_json(self) -> bool:
        return self.shape is None

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if self.errors:
            return cleaned
        payload = self._payload(cleaned) if self.shape is not None else cleaned[JSON_KEY]
        if self.is_json and self.add_prefix(JSON_KEY) not in self.data:
            # The task had fields when the page was shown: nothing must not be taken for an empty payload.
            self.add_error(JSON_KEY, _("The payload is missing. Check it, then save again."))
        elif payload is not None and not isinstance(payload, dict):
            self.add_error(JSON_KEY, _("Enter a JSON object, such as {“order”: 4711}."))
        else:
            self._check(payload or {})
        return cleaned

    def _payload(self, cleaned: Mapping[str, Any]) -> dict[str, Any]:
        values = self.shape_values(cleaned)
        return {"args": [], "kwargs": values} if self.shape is not None and self.shape.is_call else values

    def shape_values(self, cleaned: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the keys. An empty field leaves a value that has a default to the task."""
        arguments = () if self.shape is None else self.shape.arguments
        found = {each: _as_stored(cleaned.get(each.name)) for each in arguments}
        return {each.name: value for each, value in found.items() if value is not None or each.is_required}

    def shows(self, values: Mapping[str, Any]) -> bool:
        """Return whether the fields would save these values unchanged; a required value may still be missing."""
        cleaned = {}
        for name, field in self.fields.items():
            if name not in values and field.required:
                continue
            try:
                cleaned[name] = field.clean(field.prepare_value(self.initial.get(name)))
            except forms.ValidationError:
                return False
        missing = {name for name, field in self.fields.items() if field.required} - values.keys()
        saved = {name: value for name, value in self.shape_values(cleaned).items() if name not in missing}
        return json.dumps(saved, sort_keys=True) == json.dumps(dict(values), sort_keys=True)

    def _check(self, payload: dict[str, Any]) -> None:
        """Store the payload, if a worker would take it; else add its errors to the fields that they are about."""
        task = registry.tasks.get(self.task)
        try:
            encode(payload, max_size=conf.current().max_payload_size)
            if task is not None and "django_task" not in vars(task):
                # The check that a worker makes before it calls the task.
                convert = bind(task.function).convert
                if convert is not None:
                    convert(payload, "$")
        except PayloadError as error:
            for path, text in error.problems or [(error.path, str(error))]:
                self.add_error(self._field_at(path), text)
        except Exception as error:  # the constructor of a dataclass is code of the project, and may raise anything
            self.add_error(self._field_at("$"), f"{type(error).__name__}: {error}")
        else:
            self.payload = payload

    def _field_at(self, path: str) -> str | None:
        """Return the field with the value at a path; None for the form as a whole."""
        if self.is_json:
            return JSON_KEY
        for name in self.fields:
            rest = path.removeprefix(f"${key_step(name)}")
            if rest != path and (not rest or rest[0] in ".["):
                return name
        return None


def _json_field() -> forms.Field:
    return PayloadField(
        label=gettext_lazy("Payload"), required=False, strip=False, help_text=gettext_lazy("A JSON object. Default: {}")
    )


def payload_form(data: Any, *, task: str, payload: Mapping[str, Any], as_json: bool = False) -> PayloadForm:
    """Return the form of the payload of a task: fields, if they can show the whole payload."""
    shape = shape_of(task)
    if shape is not None and not as_json and payload:
        values = shape.values_in(payload)
        as_json = values is None or not PayloadForm(None, task=task, payload=payload, shape=shape).shows(values)
    return PayloadForm(data, task=task, payload=payload, as_json=as_json, shape=shape)
