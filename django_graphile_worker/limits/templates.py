"""Templates of keys: ``account:{account}`` with the fields of a payload."""

from __future__ import annotations

import json
from string import Formatter
from typing import Any

from django_graphile_worker.exceptions import InvalidJobError, PayloadError
from django_graphile_worker.job_options import storable_text

LONGEST_KEY_TEXT = 512
# The name of the fair turns of a task begins so.
FAIR_PREFIX = "fair:"


class KeyTemplate:
    """A text with payload fields in braces: ``{account}``, ``{order.account}``, ``{items.0.id}``, or ``{}``."""

    __slots__ = ("fields", "parts", "text")

    def __init__(self, text: str, where: str) -> None:
        self.text = text
        # Literal texts, and paths of fields as tuples.
        self.parts: list[str | tuple[str, ...]] = []
        try:
            for literal, field, specification, conversion in Formatter().parse(text):
                self.parts += [literal] if literal else []
                if field is not None:
                    self.parts.append(_path(field, specification, conversion))
        except ValueError as error:
            raise InvalidJobError(
                f"{where}: expected a template like 'account:{{account}}', with payload fields in braces, got {text!r} "
                f"({error}). Write {{{{ for a brace."
            ) from None
        self.fields = tuple(part for part in self.parts if isinstance(part, tuple))

    @classmethod
    def literal(cls, text: str) -> KeyTemplate:
        """Return a template without fields, whatever braces the text has."""
        template = cls("", "")
        template.text, template.parts = text, [text]
        return template

    def fill(self, payload: Any) -> str:
        """Return the text with the fields of a payload of JSON values; raise PayloadError for a missing field."""
        return "".join([part if isinstance(part, str) else _value_at(payload, part) for part in self.parts])

    def __repr__(self) -> str:
        return repr(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyTemplate) and other.parts == self.parts

    def __hash__(self) -> int:
        return hash(self.text)


def valid_key_text(text: str, name: str, *, longest: int = LONGEST_KEY_TEXT) -> str:
    """Return a text that can be stored as a key; raise InvalidJobError for any other."""
    return storable_text(name, text, longest)


def _path(field: str, specification: str | None, conversion: str | None) -> tuple[str, ...]:
    if specification or conversion:
        raise ValueError(f"{{{field}}} has a format")
    path = tuple(field.split(".")) if field else ()
    if not all(step and step.strip() == step and "[" not in step for step in path):
        raise ValueError(f"{{{field}}} is no path of fields such as {{order.account}}")
    return path


def _value_at(payload: Any, path: tuple[str, ...]) -> str:
    value = payload
    for index, step in enumerate(path):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise _missing(value, path[: index + 1], path)
    return _text_of(value, path)


def _text_of(value: Any, path: tuple[str, ...]) -> str:
    if isinstance(value, str):
        return value
    if value is not None and not isinstance(value, int | float):
        raise PayloadError(
            f"expected a text, a number, true, false or null in {_shown(path)}, got {_kind(value)}",
            path=_json_path(path),
        )
    return json.dumps(value)


def _missing(value: Any, missing: tuple[str, ...], path: tuple[str, ...]) -> PayloadError:
    inside = f" in {_shown(missing[:-1])}" if len(missing) > 1 else ""
    got = f"the fields {', '.join(map(repr, list(value)[:10]))}" if isinstance(value, dict) and value else _kind(value)
    whole = f" (of {'.'.join(path)!r})" if len(path) > 1 else ""
    return PayloadError(f"expected the field {missing[-1]!r}{whole}{inside}, got {got}", path=_json_path(missing))


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return "an object" if value else "an object without fields"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "null" if value is None else "a text" if isinstance(value, str) else f"the value {value!r}"


def _shown(path: tuple[str, ...]) -> str:
    return repr(".".join(path)) if path else "the payload"


def _json_path(path: tuple[str, ...]) -> str:
    return "".join(["$", *(f"[{step}]" if step.isdecimal() else f".{step}" for step in path)])
