"""``Limit``: the public value, the limit of a task that is made from it, and the template of its keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from string import Formatter
from typing import Any

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError, PayloadError
from django_graphile_worker.frozen import Frozen
from django_graphile_worker.job_options import storable_text
from django_graphile_worker.limits.numbers import LimitNumbers, Rate

# The name of a limit, or of fair turns, is stored with each key.
LONGEST_NAME = 256
LONGEST_KEY_TEXT = 512
# The name of the fair turns of a task begins so.
FAIR_PREFIX = "fair:"
Key = str | Callable[..., Any]


class Limit(Frozen):
    """How many jobs of a key may run at once (``concurrency``), and how many may start in a time (``rate``).

    The key is a template of payload fields (``"account:{account}"``), or a function that returns it from the payload.
    Without a key, all jobs of the task share the numbers. Tasks share a limit if its name is the same: that is
    ``name``, or else the template, or the path of the function.
    """

    key: Key | None
    numbers: LimitNumbers
    fair: bool
    name: str | None

    def __init__(
        self,
        key: Key | None = None,
        *,
        concurrency: int | None = None,
        rate: str | Rate | None = None,
        burst: int | None = None,
        fair: bool = False,
        name: str | None = None,
    ) -> None:
        where = "Limit" if key is None else f"Limit({key!r})"
        _refuse_no_number(where, concurrency, rate, fair)
        super().__init__(
            key=_valid_key(key, where),
            numbers=LimitNumbers(concurrency=concurrency, rate=rate, burst=burst, where=where),
            fair=_valid_fair(fair, where),
            name=None if name is None else valid_name(name, where),
        )

    @property
    def concurrency(self) -> int | None:
        return self.numbers.concurrency

    @property
    def rate(self) -> Rate | None:
        return self.numbers.rate

    @property
    def burst(self) -> int | None:
        return self.numbers.burst

    def of_task(self, identifier: str) -> TaskLimit:
        """Return the limit as a task has it: with a name."""
        name = self.name or _name_of(self.key) or identifier
        return TaskLimit(name=name, numbers=self.numbers, is_fair=self.fair, key=_compiled(self.key, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimit:
    """A limit of a task, or its fair turns, which have no numbers."""

    name: str
    numbers: LimitNumbers
    is_fair: bool
    # A template, or a function of the payload.
    key: KeyTemplate | Callable[..., Any]


def task_limits(limit: object, fair: object, identifier: str) -> tuple[TaskLimit, ...]:
    """Return the limits of ``@task(limit=..., fair=...)``, sorted by name; raise for a value that cannot be used."""
    found = [each.of_task(identifier) for each in _listed(limit)]
    if fair is not None:
        found.append(_fair_turns(fair))
    for name in {each.name for each in found if [other.name for other in found].count(each.name) > 1}:
        raise InvalidJobError(
            f"@task(limit=...): expected limits with different names, got {name!r} twice. Write one Limit with both "
            "numbers, or give one of them another name: Limit(..., name='...')."
        )
    if sum(each.is_fair for each in found) > 1:
        raise InvalidJobError(
            "@task: expected one key that takes turns, got several. Keep either fair='{tenant}' or fair=True of one "
            "Limit."
        )
    return tuple(sorted(found, key=lambda each: each.name))


def valid_name(name: object, where: str = "Limit") -> str:
    if not isinstance(name, str):
        raise InvalidTypeError(f"{where}: expected a text as name, got {name!r}.")
    return valid_key_text(name, f"{where}: name", longest=LONGEST_NAME)


def _listed(limit: object) -> tuple[Limit, ...]:
    if limit is None:
        return ()
    found = tuple(limit) if isinstance(limit, Iterable) and not isinstance(limit, str) else (limit,)
    for each in found:
        if not isinstance(each, Limit):
            raise InvalidTypeError(
                f"@task(limit=...): expected a Limit, or a list of them, got {each!r}. "
                "Write limit=Limit('account:{account}', concurrency=3)."
            )
    return found


def _fair_turns(key: object) -> TaskLimit:
    where = f"@task(fair={key!r})"
    valid = _valid_key(key, where)
    if valid is None or (isinstance(valid, str) and not KeyTemplate(valid, where).fields):
        raise InvalidJobError(
            f"{where}: expected a template with a payload field, such as '{{tenant}}', or a function: without a field, "
            "all jobs have the same key, and no other key to take turns with."
        )
    name = valid_name(f"{FAIR_PREFIX}{_name_of(valid)}", where)
    return TaskLimit(name=name, numbers=LimitNumbers(), is_fair=True, key=_compiled(valid, name))


def _valid_key(key: object, where: str) -> Key | None:
    if key is None or callable(key):
        return key
    if not isinstance(key, str):
        raise InvalidTypeError(
            f"{where}: expected a template like 'account:{{account}}' or a function as key, got {key!r}."
        )
    valid_name(key, where)
    KeyTemplate(key, where)
    return key


def _valid_fair(fair: object, where: str) -> bool:
    if not isinstance(fair, bool):
        raise InvalidTypeError(f"{where}: expected True or False as fair, got {fair!r}.")
    return fair


def _refuse_no_number(where: str, concurrency: object, rate: object, fair: object) -> None:
    if concurrency is not None or rate is not None:
        return
    way_out = " To let keys take turns without a limit: @task(fair='{tenant}')." if fair is True else ""
    raise InvalidJobError(f"{where}: expected concurrency=3 or rate='100/m', or both, got no number.{way_out}")


def _name_of(key: Key | None) -> str | None:
    if key is None or isinstance(key, str):
        return key
    name = getattr(key, "__qualname__", "<")
    if "<" in name:
        raise InvalidJobError(
            f"Limit({key!r}): expected a function that a module defines by name, got {key!r}: the limit needs a name "
            "that stays the same. Write Limit(..., name='account')."
        )
    return f"{key.__module__}.{name}"


def _compiled(key: Key | None, name: str) -> KeyTemplate | Callable[..., Any]:
    if key is None:
        return KeyTemplate.literal(name)
    return KeyTemplate(key, f"Limit({key!r})") if isinstance(key, str) else key


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
