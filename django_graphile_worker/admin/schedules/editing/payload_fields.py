"""Form fields for the values of a payload, by their types. What has no field of its own is edited as JSON."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import types
import typing
import uuid
from typing import Any

from django import forms
from django.utils.translation import gettext as _

from django_graphile_worker.admin.jobs.detail.payload_tree import to_json
from django_graphile_worker.admin.jobs.forms import PayloadField
from django_graphile_worker.admin.schedules.editing.payload_shape import NO_DEFAULT, Argument
from django_graphile_worker.redaction import is_secret

LONGEST_DEFAULT = 60
# What stands for a key that the payload does not have.
OMITTED: Any = object()

_EXAMPLES = {
    datetime.datetime: "2026-05-01T12:00+02:00",
    datetime.time: "09:30",
    datetime.timedelta: "1 02:30:00",
    decimal.Decimal: "12.50",
    uuid.UUID: "123e4567-e89b-12d3-a456-426614174000",
}


class ValueField:
    """A value of the payload: its form field, and both directions between the two."""

    def __init__(self, argument: Argument, *, takes_none: bool) -> None:
        self.argument = argument
        self.takes_none = takes_none
        # What an empty field means.
        self.empty = OMITTED if not argument.is_required else None
        self.is_mandatory = argument.is_required and not takes_none

    def make(self) -> forms.Field:
        return forms.CharField(strip=False, **self.options())

    def options(self, **more: Any) -> dict[str, Any]:
        label = self.argument.label or self.argument.name
        return {"label": label, "required": self.is_mandatory, "help_text": self.help_text(), **more}

    def help_text(self) -> str:
        parts = [self.argument.help_text, self.example(), self.default_text()]
        return " ".join(part for part in parts if part)

    def example(self) -> str:
        return ""

    def default_text(self) -> str:
        """Return the value that an empty field means, unless it is nothing or a secret."""
        default = self.argument.default
        if self.argument.is_required or default is NO_DEFAULT or is_secret(self.argument.name):
            return ""
        text = self.shown_default(default.value if isinstance(default, enum.Enum) else default)
        return _("Default: %(value)s") % {"value": text[:LONGEST_DEFAULT]} if text else ""

    def shown_default(self, value: Any) -> str:
        return "" if value in ("", None) else str(value)

    def to_form(self, value: Any) -> Any:
        """Return what the form shows for a value; raise ValueError if the field cannot show it."""
        if value is None and self.takes_none:
            return ""
        if not isinstance(value, str) or value == "" or "\r" in value:
            raise ValueError("the field is a text")
        return value

    def from_form(self, value: Any) -> Any:
        """Return the JSON of what the form has cleaned."""
        return self.empty if value in (None, "") else value


class TextField(ValueField):
    """A string. One with several lines gets room for them."""

    def __init__(self, argument: Argument, *, takes_none: bool, value: Any) -> None:
        super().__init__(argument, takes_none=takes_none)
        self._has_lines = isinstance(value, str) and "\n" in value

    def make(self) -> forms.Field:
        widget = (
            forms.Textarea(attrs={"rows": 4}) if self._has_lines else forms.TextInput(attrs={"class": "vTextField"})
        )
        return forms.CharField(strip=False, widget=widget, **self.options())

    def from_form(self, value: Any) -> Any:
        # Browsers send the ends of lines as CR LF.
        return super().from_form(value.replace("\r\n", "\n"))


class WrittenField(ValueField):
    """A string with a form of its own, such as a time; the check of the whole payload reads it."""

    def example(self) -> str:
        example = _EXAMPLES.get(self.argument.type) or _EXAMPLES.get(_parts(self.argument.type)[0], "")
        return _("Such as %(example)s.") % {"example": example} if example else ""


class NumberField(ValueField):
    """A number."""

    def __init__(self, argument: Argument, *, takes_none: bool, is_whole: bool) -> None:
        super().__init__(argument, takes_none=takes_none)
        self._is_whole = is_whole

    def make(self) -> forms.Field:
        kind = forms.IntegerField if self._is_whole else forms.FloatField
        # The error of a browser would be in its own language, and would not say which field it is about.
        return kind(**self.options(widget=forms.NumberInput(attrs={"step": "1" if self._is_whole else "any"})))

    def to_form(self, value: Any) -> Any:
        if value is None and self.takes_none:
            return ""
        if isinstance(value, bool) or not isinstance(value, int if self._is_whole else (int, float)):
            raise ValueError("the field is a number")
        return value

    def from_form(self, value: Any) -> Any:
        return self.empty if value is None else value


class DateField(ValueField):
    """A day."""

    def make(self) -> forms.Field:
        widget = forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
        return forms.DateField(input_formats=["%Y-%m-%d"], **self.options(widget=widget))

    def to_form(self, value: Any) -> Any:
        return datetime.date.fromisoformat(text) if (text := super().to_form(value)) else ""

    def from_form(self, value: Any) -> Any:
        return self.empty if value is None else value.isoformat()


class CheckField(ValueField):
    """True or false, of which one must be said."""

    def make(self) -> forms.Field:
        return forms.BooleanField(**self.options(required=False))

    def to_form(self, value: Any) -> Any:
        if not isinstance(value, bool):
            raise ValueError("the field is a check box")
        return value

    def from_form(self, value: Any) -> Any:
        return bool(value)


class ChoiceField(ValueField):
    """One of several values. The form has them as JSON, because 1 and "1" differ."""

    def __init__(self, argument: Argument, *, takes_none: bool, choices: list[tuple[Any, str]]) -> None:
        super().__init__(argument, takes_none=takes_none)
        self._values = {json.dumps(value): value for value, _label in choices}
        self._choices = [(json.dumps(value), label) for value, label in choices]

    def make(self) -> forms.Field:
        empty = [("", self.default_text() or _("Default") if self.empty is OMITTED else _("Nothing (null)"))]
        choices = [*([] if self.is_mandatory else empty), *self._choices]
        return forms.ChoiceField(choices=choices, **self.options(help_text=self.argument.help_text))

    def shown_default(self, value: Any) -> str:
        return dict(self._choices).get(json.dumps(value), "") if _is_scalar(value) else ""

    def to_form(self, value: Any) -> Any:
        if value is None and self.takes_none:
            return ""
        text = json.dumps(value)
        if text not in self._values:
            raise ValueError("the field has other choices")
        return text

    def from_form(self, value: Any) -> Any:
        return self._values.get(value, self.empty)


class JsonField(ValueField):
    """Any JSON: a list, an object, or a value whose type has no field."""

    def make(self) -> forms.Field:
        widget = forms.Textarea(attrs={"rows": 3, "cols": 60, "class": "gw-code", "spellcheck": "false"})
        return PayloadField(strip=False, **self.options(widget=widget))

    def example(self) -> str:
        return _("JSON.")

    def to_form(self, value: Any) -> Any:
        return to_json(value, indent=2) if isinstance(value, list | dict) and value else to_json(value)

    def from_form(self, value: Any) -> Any:
        # The field cleans "null" and nothing to the same value: without a default both mean null.
        return self.empty if value is None else value


def value_field(argument: Argument, value: Any = None) -> ValueField:
    """Return the field for a value of the payload; ``value`` is the present one."""
    kind, takes_none = _parts(argument.type)
    choices = _choices(kind)
    if choices:
        return ChoiceField(argument, takes_none=takes_none, choices=choices)
    if kind is bool:
        yes_and_no = [(True, _("Yes")), (False, _("No"))]
        if argument.is_required and not takes_none:
            return CheckField(argument, takes_none=False)
        return ChoiceField(argument, takes_none=takes_none, choices=yes_and_no)
    if kind in (int, float):
        return NumberField(argument, takes_none=takes_none, is_whole=kind is int)
    if kind is str:
        return TextField(argument, takes_none=takes_none, value=value)
    if kind is datetime.date:
        return DateField(argument, takes_none=takes_none)
    if kind in _EXAMPLES:
        return WrittenField(argument, takes_none=takes_none)
    return JsonField(argument, takes_none=takes_none)


def _parts(annotation: Any) -> tuple[Any, bool]:
    """Return a type without what wraps it, and whether it may be None."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _parts(typing.get_args(annotation)[0])
    if isinstance(annotation, typing.NewType):
        return _parts(annotation.__supertype__)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = [each for each in typing.get_args(annotation) if each is not type(None)]
        takes_none = len(members) < len(typing.get_args(annotation))
        return (_parts(members[0])[0] if len(members) == 1 else annotation), takes_none
    return annotation, False


def _choices(kind: Any) -> list[tuple[Any, str]]:
    """Return the values of an enumeration or of ``Literal``, each with its label."""
    if typing.get_origin(kind) is typing.Literal:
        return [(value, str(value)) for value in typing.get_args(kind) if _is_scalar(value)]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        members = [(member.value, str(getattr(member, "label", member.value))) for member in kind]
        return members if all(_is_scalar(value) for value, _label in members) else []
    return []


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)
