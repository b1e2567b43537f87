"""Payloads as pydantic and msgspec models: made by their own rules, refused in our own words.

Both libraries quote the value that does not fit. A refusal is kept in ``last_error``
and logged, where values of a payload have no business: the words are put together
from what the libraries say about the place and the type.
"""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.payloads import key_step
from django_graphile_worker.redaction import is_secret

# A converter takes a value and the way to it, like $.items[3].name.
Converter = Callable[[Any, str], Any]

MOST_COMPLAINTS = 5

# `Expected X, got Y - at `$.a.b``; what an enum or a tag does not know is quoted before it.
_MSGSPEC_PLACE = re.compile(r"^(?P<said>.*?)(?: - at (?P<key>`key` in )?`\$(?P<way>[^`]*)`)?\Z", re.DOTALL)
_MSGSPEC_QUOTE = re.compile(r"^(Invalid (?:enum )?value) (?:'.*'|\".*\"|-?\d+)\Z", re.DOTALL)
# What it says of types alone. Anything else, at a secret's place, may be a model's own text.
_MSGSPEC_TYPES = re.compile(r"Expected `[^`]*`, got `\w+`|Object missing required field `\w+`|Invalid (?:enum )?value")
# The one message of pydantic's own that quotes; a validator's message is the site's.
_PYDANTIC_QUOTES = {"union_tag_invalid": "Input tag does not match any of the expected tags"}


class _Complaint(NamedTuple):
    place: str
    said: str

    def __str__(self) -> str:
        return f"{self.place} does not fit: {self.said}"


def converter_for_model(annotation: Any) -> Converter | None:
    """How to make a model of libraries that only matter once the site itself has imported them."""
    kind = typing.get_origin(annotation) or annotation
    pydantic: Any = sys.modules.get("pydantic")
    msgspec: Any = sys.modules.get("msgspec")
    if _is_pydantic(kind):
        is_dataclass = not issubclass(kind, pydantic.BaseModel)
        validate = pydantic.TypeAdapter(annotation).validate_python if is_dataclass else kind.model_validate
        return _validated(validate, pydantic.ValidationError, _told_by_pydantic)
    if _is_msgspec(kind):
        return _validated(lambda value: msgspec.convert(value, annotation), msgspec.ValidationError, _told_by_msgspec)
    return None


def is_model(kind: Any) -> bool:
    """Tell whether one of those libraries makes this class's instances."""
    return _is_pydantic(kind) or _is_msgspec(kind)


def _is_pydantic(kind: Any) -> bool:
    """A model, or a dataclass that pydantic made: it validates as well, and quotes what it refuses."""
    return isinstance(kind, type) and "pydantic" in sys.modules and "__pydantic_validator__" in vars(kind)


def _is_msgspec(kind: Any) -> bool:
    msgspec: Any = sys.modules.get("msgspec")
    return isinstance(kind, type) and msgspec is not None and issubclass(kind, msgspec.Struct)


def _validated(
    validate: Callable[[Any], Any],
    refusal: type[Exception],
    told: Callable[[Any, str], list[_Complaint]],
) -> Converter:
    def convert(value: Any, path: str) -> Any:
        try:
            return validate(value)
        except refusal as error:
            complaints = told(error, path)
        raise _misfit(complaints, path)

    return convert


def _misfit(complaints: list[_Complaint], path: str) -> PayloadError:
    text = "; ".join(map(str, complaints[:MOST_COMPLAINTS])) or f"{path} does not fit"
    more = len(complaints) - MOST_COMPLAINTS
    place = complaints[0].place if complaints else path
    return PayloadError(f"payload: {text}{f'; and {more} more' if more > 0 else ''}.", path=place)


def _told_by_pydantic(error: Any, path: str) -> list[_Complaint]:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [_pydantic_complaint(each, path) for each in found]


def _pydantic_complaint(told: Mapping[str, Any], path: str) -> _Complaint:
    place = _place(path, told["loc"])
    kind = str(told["type"])
    said = kind if is_secret(place) else _PYDANTIC_QUOTES.get(kind, str(told["msg"]))
    return _Complaint(place, said)


def _place(path: str, steps: Iterable[Any]) -> str:
    """The way there; below a secret key the keys may be secret themselves."""
    for step in steps:
        if is_secret(path):
            return f"{path}[…]"
        path += f"[{step}]" if isinstance(step, int) else key_step(step)
    return path


def _told_by_msgspec(error: Any, path: str) -> list[_Complaint]:
    found = _MSGSPEC_PLACE.match(str(error))
    assert found is not None  # everything in it is optional
    place = f"{path}{found['way'] or ''}{'[a key]' if found['key'] else ''}"
    said = _MSGSPEC_QUOTE.sub(r"\1", found["said"])
    if is_secret(place) and not _MSGSPEC_TYPES.fullmatch(said):
        said = "it is not what the model expects"
    return [_Complaint(place, said)]
