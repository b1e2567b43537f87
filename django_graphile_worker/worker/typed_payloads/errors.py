"""The errors of converters: they name the place of a value that does not fit, and never show the value.

A value may be a secret, and the error is stored and logged. Its place and its type are enough to correct it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.payloads import key_step
from django_graphile_worker.redaction import is_secret
from django_graphile_worker.suggestions import did_you_mean

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
