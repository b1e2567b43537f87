"""The form of a payload: a field for each value that the task takes, or one field with JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_graphile_worker import conf, registry
from django_graphile_worker.admin.jobs.detail.payload_tree import to_json
from django_graphile_worker.admin.jobs.forms import PayloadField
from django_graphile_worker.admin.schedules.editing.payload_fields import OMITTED, CheckField, ValueField, value_field
from django_graphile_worker.admin.schedules.editing.payload_shape import Shape, check_of, shape_of
from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.payloads import encode, key_step

PREFIX = "payload"
JSON_KEY = "json"
# Values that the form of a Django task does not show.
_CALL: dict[str, Any] = {"args": [], "kwargs": {}}


class PayloadForm(forms.Form):
    """What a payload form has: ``payload``, once it is valid, and ``is_json``."""

    is_json = False
    payload: dict[str, Any]

    def check_payload(self, task_identifier: str, payload: dict[str, Any]) -> None:
        """Store the payload, if a worker would take it; else add its errors to the fields that they are about."""
        try:
            encode(payload, max_size=conf.current().max_payload_size)
            task = registry.tasks.get(task_identifier)
            check = None if task is None else check_of(task)
            if check is not None:
                check(payload)
        except PayloadError as error:
            for path, text in error.problems or [(error.path, str(error))]:
                self.add_error(self._field_of(path), text)
        except Exception as error:  # the constructor of a dataclass is code of the project, and may raise anything
            self.add_error(self._field_of("$"), f"{type(error).__name__}: {error}")
        else:
            self.payload = payload

    def _field_of(self, path: str) -> str | None:
        """Return the field with the value at a path; None for the form as a whole."""
        return next((name for name in self.fields if _is_below(path, name)), None)


class JsonPayloadForm(PayloadForm):
    """The payload as JSON."""

    is_json = True
    json = PayloadField(
        label=gettext_lazy("Payload"), required=False, strip=False, help_text=gettext_lazy("A JSON object. Default: {}")
    )

    def __init__(self, data: Any, *, task: str, payload: Mapping[str, Any]) -> None:
        super().__init__(data, prefix=PREFIX, initial={JSON_KEY: to_json(payload, indent=2) if payload else "{}"})
        self._task = task

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if JSON_KEY not in cleaned:
            return cleaned
        if self.add_prefix(JSON_KEY) not in self.data:
            # The task had fields when the page was shown: nothing must not be taken for an empty payload.
            self.add_error(JSON_KEY, _("Expected the payload, got none: check it, then save again."))
            return cleaned
        payload = {} if cleaned[JSON_KEY] is None else cleaned[JSON_KEY]
        if not isinstance(payload, dict):
            self.add_error(JSON_KEY, _("Expected a JSON object, such as {“order”: 4711}, got another value."))
        else:
            self.check_payload(self._task, payload)
        return cleaned

    def _field_of(self, path: str) -> str | None:
        return JSON_KEY


class TypedPayloadForm(PayloadForm):
    """The payload as fields, by what the task takes."""

    def __init__(self, data: Any, *, task: str, shape: Shape, payload: Mapping[str, Any]) -> None:
        values = payload.get("kwargs", {}) if shape.is_call else payload
        parts = _parts(shape, values)
        super().__init__(data, prefix=PREFIX, initial=_initial(parts, values))
        self._task, self._shape, self._parts = task, shape, parts
        self.fields = {part.argument.name: part.make() for part in parts}

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if not self.errors:
            self.check_payload(self._task, _payload(self._shape, self._parts, cleaned))
        return cleaned


def payload_form(data: Any, *, task: str, payload: Mapping[str, Any], as_json: bool = False) -> PayloadForm:
    """Return the form of the payload of a task: fields, if they can show the whole payload."""
    shape = fields_of(task)
    if shape is None or as_json or not is_shown_by(shape, payload):
        return JsonPayloadForm(data, task=task, payload=payload)
    return TypedPayloadForm(data, task=task, shape=shape, payload=payload)


def fields_of(task_identifier: str) -> Shape | None:
    """Return the keys of the payload of a task, if each can have a form field."""
    task = registry.tasks.get(task_identifier)
    shape = None if task is None else shape_of(task)
    if shape is None or not all(_can_be_named(argument.name) for argument in shape.arguments):
        return None
    return shape


def is_shown_by(shape: Shape, payload: Mapping[str, Any]) -> bool:
    """Return whether fields show a payload whole: saving them without a change must not change it."""
    if not payload:
        return True
    values = payload
    if shape.is_call:
        values = payload.get("kwargs", {})
        if not isinstance(values, Mapping) or {**_CALL, **payload} != {**_CALL, "kwargs": values}:
            return False
    parts = _parts(shape, values)
    try:
        shown = _initial(parts, values)
    except ValueError:
        return False
    names = {part.argument.name for part in parts}
    return values.keys() <= names and all(_is_kept(part, shown, values) for part in parts)


def _parts(shape: Shape, values: Mapping[str, Any]) -> list[ValueField]:
    return [value_field(argument, values.get(argument.name)) for argument in shape.arguments]


def _initial(parts: Iterable[ValueField], values: Mapping[str, Any]) -> dict[str, Any]:
    given = [part for part in parts if part.argument.name in values]
    return {part.argument.name: part.to_form(values[part.argument.name]) for part in given}


def _is_kept(part: ValueField, shown: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Return whether a value survives the way through the form; a required value may still be missing."""
    name = part.argument.name
    if name not in values:
        # A check box would say no, and a field that may be empty null.
        return not part.argument.is_required or (part.is_mandatory and not isinstance(part, CheckField))
    try:
        field = part.make()
        cleaned = field.clean(field.prepare_value(shown[name]))
    except forms.ValidationError:
        return False
    kept = part.from_form(cleaned)
    return kept is not OMITTED and to_json(kept) == to_json(values[name])


def _payload(shape: Shape, parts: Iterable[ValueField], cleaned: Mapping[str, Any]) -> dict[str, Any]:
    found = {part.argument.name: part.from_form(cleaned.get(part.argument.name)) for part in parts}
    values = {name: value for name, value in found.items() if value is not OMITTED}
    return {"args": [], "kwargs": values} if shape.is_call else values


def _is_below(path: str, name: str) -> bool:
    rest = path.removeprefix(f"${key_step(name)}")
    return rest != path and (not rest or rest[0] in ".[")


def _can_be_named(name: str) -> bool:
    return bool(name) and not any(character.isspace() or character in "\"'<>" for character in name)
