"""Payloads as pydantic and msgspec models: the libraries build the models, this module writes the errors.

The errors of both libraries quote the value that does not fit. An error is stored in ``last_error`` and logged, where
values of a payload must not appear. So the message is built from the place and the type that the libraries report.
"""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_graphile_worker.exceptions import PayloadError
from django_graphile_worker.payloads import key_step
from django_graphile_worker.redaction import is_secret

if TYPE_CHECKING:
    # A circle: the converters call this module.
    from django_graphile_worker.worker.typed_payloads.converters import Converter

MAX_PROBLEMS = 5

# `Expected X, got Y - at `$.a.b``. A message about an unknown value of an enum or a tag quotes the value.
_MSGSPEC_PLACE = re.compile(r"^(?P<text>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`)?\Z", re.DOTALL)
_MSGSPEC_QUOTE = re.compile(r"^(Invalid (?:enum )?value) (?:'.*'|\".*\"|-?\d+)\Z", re.DOTALL)
# Messages that name only types. Any other message may be a model's own text, and quote a secret.
_MSGSPEC_TYPES = re.compile(r"Expected `[^`]*`, got `\w+`|Object missing required field `\w+`|Invalid (?:enum )?value")
# The only message of pydantic itself that quotes a value; the message of a validator is code of the site.
_PYDANTIC_QUOTES = {"union_tag_invalid": "Input tag does not match any of the expected tags"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """A value that a library rejected: its place, and the reason."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path} does not fit: {self.text}"


def converter_for_model(annotation: Any) -> Converter | None:
    """Return a converter for a model of pydantic or msgspec; None for any other class.

    Neither library is imported here: if the site did not import a library, the class is not a model of it.
    """
    kind = typing.get_origin(annotation) or annotation
    pydantic: Any = sys.modules.get("pydantic")
    msgspec: Any = sys.modules.get("msgspec")
    if _is_pydantic(kind):
        is_dataclass = not issubclass(kind, pydantic.BaseModel)
        validate = pydantic.TypeAdapter(annotation).validate_python if is_dataclass else kind.model_validate
        return _validated(validate, pydantic.ValidationError, _pydantic_problems)
    if _is_msgspec(kind):
        return _validated(lambda value: msgspec.convert(value, annotation), msgspec.ValidationError, _msgspec_problems)
    return None


def is_model(kind: Any) -> bool:
    """Return True if pydantic or msgspec constructs the instances of this class."""
    return _is_pydantic(kind) or _is_msgspec(kind)


def _is_pydantic(kind: Any) -> bool:
    """Return True for a model or a dataclass of pydantic: both validate, and quote values in errors."""
    return isinstance(kind, type) and "pydantic" in sys.modules and "__pydantic_validator__" in vars(kind)


def _is_msgspec(kind: Any) -> bool:
    msgspec: Any = sys.modules.get("msgspec")
    return isinstance(kind, type) and msgspec is not None and issubclass(kind, msgspec.Struct)


def _validated(
    validate: Callable[[Any], Any],
    validation_error: type[Exception],
    problems_of: Callable[[Any, str], list[_Problem]],
) -> Converter:
    def convert(value: Any, path: str) -> Any:
        try:
            return validate(value)
        except validation_error as error:
            problems = problems_of(error, path)
        # Raised after the block, so that its context is not the library's error, which quotes the value.
        raise _misfit(problems, path)

    return convert


def _misfit(problems: list[_Problem], path: str) -> PayloadError:
    text = "; ".join(map(str, problems[:MAX_PROBLEMS])) or f"{path} does not fit"
    more = len(problems) - MAX_PROBLEMS
    first_path = problems[0].path if problems else path
    error = PayloadError(f"payload: {text}{f'; and {more} more' if more > 0 else ''}.", path=first_path)
    error.problems = tuple((each.path, each.text) for each in problems)
    return error


def _pydantic_problems(error: Any, path: str) -> list[_Problem]:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [_pydantic_problem(each, path) for each in found]


def _pydantic_problem(details: Mapping[str, Any], path: str) -> _Problem:
    place = _path(path, details["loc"])
    kind = str(details["type"])
    text = kind if is_secret(place) else _PYDANTIC_QUOTES.get(kind, str(details["msg"]))
    return _Problem(path=place, text=text)


def _path(path: str, steps: Iterable[Any]) -> str:
    """Return the path to a value. Below a secret key the keys may be secret, too, and are hidden."""
    for step in steps:
        if is_secret(path):
            return f"{path}[…]"
        path += f"[{step}]" if isinstance(step, int) else key_step(step)
    return path


def _msgspec_problems(error: Any, path: str) -> list[_Problem]:
    found = _MSGSPEC_PLACE.match(str(error))
    assert found is not None  # every part of the pattern is optional
    place = f"{path}{found['path'] or ''}{'[a key]' if found['key'] else ''}"
    text = _MSGSPEC_QUOTE.sub(r"\1", found["text"])
    if is_secret(place) and not _MSGSPEC_TYPES.fullmatch(text):
        text = "it is not what the model expects"
    return [_Problem(path=place, text=text)]
