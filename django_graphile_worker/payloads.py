"""Payloads: encodes Python values as JSON that PostgreSQL can store and Python can read back, and decodes it.

A usable payload costs one pass of the C encoder and a few scans of its text. If one of these
fails, the value is walked to find the part that cannot be used.
"""

from __future__ import annotations

import dataclasses
import json
import json.encoder
import math
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from django_graphile_worker.exceptions import PayloadError

# json.loads() recurses, and fails at about a thousand levels. Its callers may need up to half of them.
MAX_DEPTH = 500
# Python refuses to read a longer integer back (sys.set_int_max_str_digits).
MAX_DIGITS = 4300
_PLAIN_KEY = r"[^\W\d]\w*"


class PayloadPart:
    """A part of a payload, and the path to it."""

    def __init__(self, value: Any, step: str = "$", parent: PayloadPart | None = None) -> None:
        self.value = value
        self.step = step
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1

    def ancestors(self) -> Iterator[PayloadPart]:
        part = self.parent
        while part is not None:
            yield part
            part = part.parent

    def path(self) -> str:
        steps = [self.step, *(part.step for part in self.ancestors())]
        return "".join(reversed(steps))

    def child(self, step: str, value: Any) -> PayloadPart:
        return PayloadPart(value, step, self)

    def children(self) -> list[PayloadPart]:
        if isinstance(self.value, dict):
            return [self.child(key_step(key), item) for key, item in self.value.items()]
        if isinstance(self.value, list | tuple):
            return [self.child(f"[{index}]", item) for index, item in enumerate(self.value)]
        return []


def key_step(key: Any) -> str:
    """Return the step to a key's value in a path: ``.name``, or ``["any text"]``."""
    text = key if isinstance(key, str) else json.dumps(key) if key is None or isinstance(key, bool) else str(key)
    return f".{text}" if re.fullmatch(_PLAIN_KEY, text) else f"[{json.dumps(text)}]"


class _Encoder(DjangoJSONEncoder):
    """Django's encoder, extended by the model types that a task may annotate its payload with."""

    def default(self, o: Any) -> Any:
        try:
            return super().default(o)
        except TypeError:
            if isinstance(o, type):
                raise
            if dataclasses.is_dataclass(o):
                # Like asdict(), but without copies. Leave out fields that the constructor does not take: they could not
                # be read back.
                return {field.name: getattr(o, field.name) for field in dataclasses.fields(o) if field.init}
            if _is_pydantic(o):
                return _dumped_by_pydantic(o)
            if hasattr(type(o), "__struct_fields__") and "msgspec" in sys.modules:
                return sys.modules["msgspec"].to_builtins(o)
            raise


def _is_pydantic(value: Any) -> bool:
    return hasattr(type(value), "model_dump") and hasattr(type(value), "model_validate")


# The text that pydantic writes for a SecretStr.
_HIDDEN_BY_PYDANTIC = "**********"


def _dumped_by_pydantic(model: Any) -> Any:
    """Return the model as ``model_validate()`` takes it."""
    dumped = model.model_dump(mode="json", by_alias=True, round_trip=True)
    waiting = [PayloadPart(dumped)]
    while waiting:
        part = waiting.pop()
        if part.value == _HIDDEN_BY_PYDANTIC:
            raise ValueError(
                f"pydantic hides the secret at {part.path()}, so it would be lost: add a serializer to the field, "
                "or read the secret in the task"
            )
        waiting.extend(part.children())
    return dumped


_encoder = _Encoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _reused_encoder() -> Callable[[Any], str]:
    """Return a function that encodes as ``_encoder.encode`` does, in half of its time for a small payload.

    ``JSONEncoder.encode`` makes an encoder in C for every call, and a dict in which it looks for cycles. This encoder
    is made once. It does not look for cycles: a cycle ends in a RecursionError.
    """
    make_encoder = getattr(json.encoder, "c_make_encoder", None)
    if make_encoder is None:
        return _encoder.encode
    chunks = make_encoder(None, _encoder.default, json.encoder.encode_basestring, None, ":", ",", False, False, False)
    return lambda value: "".join(chunks(value, 0))


_encode = _reused_encoder()
# Patterns for unusual payloads, as text: they are compiled when the first such payload is encoded.
_JSON_STRING = rb'"(?:[^"\\]+|\\.)*"'
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_UNSTORABLE = "[\x00\ud800-\udfff]"


class RawPayload(str):
    """The JSON text of a payload that PostgreSQL can store but Python cannot decode."""

    __slots__ = ()


def encode(payload: Any, *, max_size: int) -> str:
    """Return the JSON text of a value, or raise PayloadError with the part of it that cannot be encoded."""
    try:
        text = _encode(payload)
        size = len(text) if text.isascii() else len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise _first_problem(payload) or _unplaced(error) from error
    if size > max_size:
        raise _too_large(payload, size, max_size)
    if "\\u0000" in text or _may_be_too_deep(text):
        problem = _first_problem(payload)
        if problem:
            raise problem
    return text


def decode(text: str) -> Any:
    """Return the value of a payload; raise ValueError or RecursionError if Python cannot decode it."""
    return json.loads(text)


def decode_leniently(text: str) -> Any:
    """Return the value of a payload, or its text as RawPayload if Python cannot decode it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return RawPayload(text)


def _may_be_too_deep(text: str) -> bool:
    # Each level takes at least two characters.
    if len(text) <= 2 * MAX_DEPTH or text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    brackets = re.sub(_JSON_STRING, b"", text.encode()).translate(None, _ALL_BUT_BRACKETS)
    # Each pass removes at least the innermost level.
    for _ in range(MAX_DEPTH):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return bool(brackets)


def _first_problem(payload: Any) -> PayloadError | None:
    """Walk the payload in order, without recursion, to its first unusable part; return the error about it, or None."""
    waiting = [PayloadPart(payload)]
    while waiting:
        part = waiting.pop()
        try:
            part.value = _as_json_type(part.value)
        except (TypeError, ValueError) as error:
            return _error_at(part, _unsupported(part.value, error))
        problem = _value_problem(part)
        if problem:
            return _error_at(part, problem)
        waiting.extend(reversed(part.children()))
    return None


def _as_json_type(value: Any) -> Any:
    """Apply the encoder until the value is of a type that JSON has."""
    while not (value is None or isinstance(value, str | int | float | dict | list | tuple)):
        value = _encoder.default(value)
    return value


def _value_problem(part: PayloadPart) -> str | None:
    value = part.value
    if isinstance(value, str):
        return text_problem(value)
    if isinstance(value, float):
        return None if math.isfinite(value) else f"expected a finite number, got {value!r}"
    if isinstance(value, int):
        is_too_long = abs(value) >= 10**MAX_DIGITS
        return f"the number has more than {MAX_DIGITS} digits" if is_too_long else None
    if isinstance(value, dict | list | tuple):
        return _container_problem(part)
    return None


def _container_problem(part: PayloadPart) -> str | None:
    for ancestor in part.ancestors():
        if ancestor.value is part.value:
            return f"the value contains itself: it refers back to {ancestor.path()}"
    if part.depth >= MAX_DEPTH:
        return f"the value is nested more than {MAX_DEPTH} levels deep"
    if isinstance(part.value, dict):
        return next(filter(None, map(_key_problem, part.value)), None)
    return None


def _key_problem(key: Any) -> str | None:
    # Not isinstance(): a lazy object has the class of the text that it stands for.
    if issubclass(type(key), str):
        problem = text_problem(key)
        return problem and f"{problem} in the key {key!r}"
    if isinstance(key, float) and not math.isfinite(key):
        return f"expected finite numbers as keys, got {key!r}"
    if key is None or isinstance(key, int | float):
        return None
    return f"expected strings as keys, got {type(key).__name__}"


def text_problem(text: str) -> str | None:
    """Return what PostgreSQL cannot store of a text, or None."""
    found = re.search(_UNSTORABLE, text)
    if not found:
        return None
    kind = "a NUL character" if found[0] == "\x00" else f"half a surrogate pair ({found[0]!r})"
    return f"PostgreSQL cannot store {kind} at position {found.start()}"


def _unsupported(value: Any, error: Exception) -> str:
    if isinstance(error, TypeError):
        return f"expected a value that JSON can hold, got {type(value).__name__}{_way_out(value)}"
    return f"expected a value that JSON can hold, got {type(value).__name__} ({error})"


def _way_out(value: Any) -> str:
    if hasattr(type(value), "_meta") and hasattr(value, "pk"):
        return " (pass its pk, and get the row in the task: it may change until then)"
    if hasattr(value, "values_list"):
        return " (pass the pks: list(queryset.values_list('pk', flat=True)))"
    if isinstance(value, set | frozenset):
        return " (pass a list)"
    if isinstance(value, bytes | bytearray | memoryview):
        return " (pass text, or the URL of a file)"
    return ""


def _error_at(part: PayloadPart, problem: str) -> PayloadError:
    path = part.path()
    return PayloadError(f"payload: {problem} at {_shortened(path)}.", path=path)


def _shortened(path: str) -> str:
    return path if len(path) <= 200 else f"{path[:100]}…{path[-80:]}"


def _too_large(payload: Any, size: int, max_size: int) -> PayloadError:
    path = _heaviest(PayloadPart(payload)).path()
    return PayloadError(
        f"payload: {size} bytes of JSON exceed the limit of {max_size}, most of them at {_shortened(path)}. "
        'Keep large data elsewhere and pass its URL, or raise GRAPHILE_WORKER["MAX_PAYLOAD_SIZE"].',
        path=path,
    )


def _heaviest(part: PayloadPart) -> PayloadPart:
    """Return the deepest part that holds most of the payload: descend while a child is at least half of its parent."""
    size = len(_encode(part.value))
    while children := part.children():
        weights = [len(_encode(child.value)) for child in children]
        heaviest = max(weights)
        if heaviest * 2 < size:
            break
        part, size = children[weights.index(heaviest)], heaviest
    return part


def _unplaced(error: Exception) -> PayloadError:
    return PayloadError(f"payload: JSON cannot hold the value: {error}.")
