"""Limits: how many jobs of a key may run at once, how many may start in a time, and which keys take turns.

A limit (``Limit``) has numbers, and a key: a template or a function that makes the *key text* of a job from its
payload. All jobs whose key text is the same share the numbers, in all tasks that have a limit with the same name.

A worker needs two functions: ``keys_of()`` returns the pairs (name of a limit, key text) of a job, and
``definitions()`` the numbers of every limit after the setting ``LIMITS``. Numbers that an operator stored in the
database replace both; ``sql.limits`` reads and writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any, NamedTuple, Protocol

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError, PayloadError
from django_graphile_worker.job_options import storable_text, whole_number
from django_graphile_worker.text import did_you_mean

Key = str | Callable[..., Any]

# The name of a limit, or of fair turns, is stored with each key.
LONGEST_NAME = 256
LONGEST_KEY_TEXT = 512
# The name of the fair turns of a task begins so.
FAIR_PREFIX = "fair:"
# The key text of jobs whose payload makes none: added by SQL or Node without the field, or the function raised. They
# share the numbers of the limit, and their task reports the error when it runs.
UNREADABLE = "<unreadable>"
LARGEST_CONCURRENCY = 100_000
# The keys of an entry of GRAPHILE_WORKER["LIMITS"].
NUMBERS = ("concurrency", "rate", "burst")
LARGEST_COUNT = 1_000_000
LONGEST_WINDOW = 31 * 86_400
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_UNITS = {
    "s": ("s", "sec", "second", "seconds"),
    "m": ("m", "min", "minute", "minutes"),
    "h": ("h", "hour", "hours"),
    "d": ("d", "day", "days"),
}
_UNIT_OF_NAME = {name: unit for unit, names in _UNITS.items() for name in names}
_SHAPE = re.compile(r"\s*(\d+)\s*(?:/|per)\s*(\d*)\s*([a-z]+)\s*", re.ASCII | re.IGNORECASE)
EXPECTED = "expected a rate like '100/m': a whole number, a slash, and s, m, h, d or a number of them ('300/15m')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A number of starts in a window of time."""

    count: int
    # The length of the window.
    seconds: int

    @classmethod
    def parse(cls, value: object, *, name: str = "rate") -> Rate:
        """Return the rate of a text; raise for a text that is no rate."""
        if isinstance(value, Rate):
            return value
        if not isinstance(value, str):
            raise InvalidTypeError(f"{name}: {EXPECTED}, got {value!r} ({type(value).__name__}).")
        found = _SHAPE.fullmatch(value)
        unit = _UNIT_OF_NAME.get(found[3].lower()) if found else None
        if found is None or unit is None:
            raise InvalidJobError(f"{name}: {EXPECTED}, got {value!r}.{_rate_meant_by(value)}")
        count, seconds = int(found[1]), int(found[2] or 1) * _SECONDS[unit]
        if not 1 <= count <= LARGEST_COUNT:
            raise InvalidJobError(f"{name}: expected 1 to {LARGEST_COUNT} starts, got {value!r}.")
        if not 1 <= seconds <= LONGEST_WINDOW:
            raise InvalidJobError(f"{name}: expected a window of 1 second to 31 days, got {value!r}.")
        return cls(count=count, seconds=seconds)

    def __str__(self) -> str:
        unit = next(unit for unit in ("d", "h", "m", "s") if self.seconds % _SECONDS[unit] == 0)
        number = self.seconds // _SECONDS[unit]
        return f"{self.count}/{number if number > 1 else ''}{unit}"


@dataclass(frozen=True, slots=True, init=False)
class LimitNumbers:
    """How many jobs of a key run at once, and how many start in a time; None is no limit."""

    concurrency: int | None
    rate: Rate | None
    # Of the starts of a window, how many may follow each other at once; None for all of them.
    burst: int | None

    def __init__(self, *, concurrency: object = None, rate: object = None, burst: object = None, where: str = "Limit"):
        if concurrency is not None:
            concurrency = whole_number(f"{where}: concurrency", concurrency, 1, LARGEST_CONCURRENCY)
        parsed = None if rate is None else Rate.parse(rate, name=f"{where}: rate")
        object.__setattr__(self, "concurrency", concurrency)
        object.__setattr__(self, "rate", parsed)
        object.__setattr__(self, "burst", _valid_burst(burst, parsed, where))

    @property
    def are_limiting(self) -> bool:
        return self.concurrency is not None or self.rate is not None

    @property
    def rate_count(self) -> int | None:
        return None if self.rate is None else self.rate.count

    @property
    def rate_seconds(self) -> int | None:
        return None if self.rate is None else self.rate.seconds

    def overridden(self, numbers: Mapping[str, Any]) -> LimitNumbers:
        """Return the numbers with these changes; a burst that the rate does not reach is left out."""
        values = {name: getattr(self, name) for name in NUMBERS} | dict(numbers)
        rate = None if values["rate"] is None else Rate.parse(values["rate"])
        if rate is None or (values["burst"] or 0) >= rate.count:
            values["burst"] = None
        return LimitNumbers(**values)

    def __str__(self) -> str:
        parts = [
            f"{self.concurrency} at once" if self.concurrency is not None else "",
            str(self.rate) if self.rate is not None else "",
            f"burst {self.burst}" if self.burst is not None else "",
        ]
        return ", ".join(part for part in parts if part) or "no limit"


def _valid_burst(burst: object, rate: Rate | None, where: str) -> int | None:
    if burst is None:
        return None
    if rate is None:
        raise InvalidJobError(
            f"{where}: burst={burst!r} needs a rate: it is how many of its starts may follow each other at once. "
            "Add rate='100/m', or write concurrency=."
        )
    return whole_number(f"{where}: burst", burst, 1, rate.count)


def _rate_meant_by(text: str) -> str:
    """Return the rate that is probably meant by a fraction, as a sentence."""
    found = re.fullmatch(r"\s*0\.5\s*/\s*([smhd])\s*", text)
    if found:
        return f" Write '1/2{found[1]}'."
    return " A fraction is a longer window: '1/10s' is one start in ten seconds." if "." in text else ""


@dataclass(frozen=True, slots=True, init=False)
class Limit:
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
        numbers = LimitNumbers(concurrency=concurrency, rate=rate, burst=burst, where=where)
        object.__setattr__(self, "key", _valid_key(key, where))
        object.__setattr__(self, "numbers", numbers)
        object.__setattr__(self, "fair", _valid_fair(fair, where))
        object.__setattr__(self, "name", None if name is None else valid_name(name, where))

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
            f"@task(limit=...): two limits have the name {name!r}. Write one Limit with both numbers, or give one of "
            "them another name: Limit(..., name='...')."
        )
    if sum(each.is_fair for each in found) > 1:
        raise InvalidJobError(
            "@task: only one key can take turns. Keep either fair='{tenant}' or fair=True of one Limit."
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
    raise InvalidJobError(f"{where}: a limit needs concurrency=3 or rate='100/m', or both.{way_out}")


def _name_of(key: Key | None) -> str | None:
    if key is None or isinstance(key, str):
        return key
    name = getattr(key, "__qualname__", "<")
    if "<" in name:
        raise InvalidJobError(
            f"Limit({key!r}): the limit needs a name that stays the same, and the function has none. "
            "Write Limit(..., name='account')."
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
                    self.parts.append(_field_path(field, specification, conversion))
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


def _field_path(field: str, specification: str | None, conversion: str | None) -> tuple[str, ...]:
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
            raise _missing_field(value, path[: index + 1], path)
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


def _missing_field(value: Any, missing: tuple[str, ...], path: tuple[str, ...]) -> PayloadError:
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


class LimitedTask(Protocol):
    """The part of a task that this module uses."""

    @property
    def identifier(self) -> str: ...

    @property
    def limits(self) -> tuple[TaskLimit, ...]: ...

    def key_fields(self, payload: Any) -> Any:
        """Return the value whose fields a template names."""

    def key_from(self, function: Callable[..., Any], payload: Any) -> object:
        """Return what a key function returns for a payload."""


class JobKey(NamedTuple):
    """A key of a job: the name of a limit, and the text that the payload makes."""

    limit_name: str
    text: str


def keys_of(task: LimitedTask, payload_text: str) -> tuple[JobKey, ...]:
    """Return the keys of a job of the task, sorted by the name of the limit; never raise, whatever the payload is."""
    try:
        payload = json.loads(payload_text)
    except (ValueError, RecursionError):
        # A key without fields is readable all the same.
        payload = None
    return tuple(JobKey(limit.name, _readable_text(task, limit, payload)) for limit in task.limits)


def refuse_unkeyed(task: LimitedTask, payload_text: str) -> None:
    """Raise PayloadError if the payload of a job that is to be added lacks a field that a limit of its task needs."""
    payload = json.loads(payload_text)
    for limit in task.limits:
        try:
            _key_text(task, limit, payload)
        except PayloadError as error:
            message = f"payload: {error}: {_asking(limit)} of the task {task.identifier!r} needs it."
            raise PayloadError(message, path=error.path) from None


def _asking(limit: TaskLimit) -> str:
    """Return the name of the limit, or what its task has as fair=, as it is written in the code."""
    if limit.name.startswith(FAIR_PREFIX) and not limit.numbers.are_limiting:
        return f"fair={limit.name.removeprefix(FAIR_PREFIX)!r}"
    return f"the limit {limit.name!r}"


def _readable_text(task: LimitedTask, limit: TaskLimit, payload: Any) -> str:
    try:
        return _key_text(task, limit, payload)
    except Exception:
        # A function of the project may raise anything.
        return UNREADABLE


def _key_text(task: LimitedTask, limit: TaskLimit, payload: Any) -> str:
    if isinstance(limit.key, KeyTemplate):
        text = limit.key.fill(task.key_fields(payload))
    else:
        text = _returned_text(limit.key, task.key_from(limit.key, payload))
    try:
        return valid_key_text(text, "key text")
    except InvalidJobError as error:
        raise PayloadError(str(error).rstrip(".")) from None


def _returned_text(function: Callable[..., Any], value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    name = getattr(function, "__qualname__", repr(function))
    raise InvalidTypeError(
        f"Limit: expected the key function {name} to return a text or a whole number, got {value!r}. "
        "To share the numbers among several jobs, return the same text for them."
    )


_EXPECTED_OVERRIDES = (
    "a dict of names of limits and their numbers, {'account:{account}': {'concurrency': 5, 'rate': '100/m'}}"
)

# Pairs of a name and its numbers, which are pairs, too: a setting is a value that has a hash.
Overrides = tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]


class InvalidEntryError(Exception):
    """An entry of the setting cannot be used; the message is what was expected."""


def checked_overrides(value: Any) -> Overrides:
    """Return each name of a limit with its numbers; raise MistakenEntryError. None lifts a number."""
    if not isinstance(value, Mapping):
        raise InvalidEntryError(_EXPECTED_OVERRIDES)
    return tuple((_override_name(name), _override_numbers(name, numbers)) for name, numbers in value.items())


def _override_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidEntryError(_EXPECTED_OVERRIDES)
    return name


def _override_numbers(name: str, numbers: Any) -> tuple[tuple[str, Any], ...]:
    if not isinstance(numbers, Mapping):
        raise InvalidEntryError(f"{_EXPECTED_OVERRIDES} ({name!r} has {numbers!r})")
    for key in numbers:
        if key not in NUMBERS:
            way_out = did_you_mean(str(key).lower(), NUMBERS) or f"Known keys: {', '.join(NUMBERS)}."
            raise InvalidEntryError(f"{_EXPECTED_OVERRIDES} ({name!r} has the unknown key {key!r}. {way_out})")
    try:
        # A burst alone is compared with the rate of the task: `LimitNumbers.overridden`.
        LimitNumbers(**{key: number for key, number in numbers.items() if key != "burst" or "rate" in numbers})
    except (InvalidJobError, InvalidTypeError) as error:
        raise InvalidEntryError(f"{_EXPECTED_OVERRIDES} ({name!r}: {str(error).rstrip('.')})") from None
    return tuple(numbers.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitDefinition:
    """A limit by its name: the numbers, and the tasks that have it."""

    name: str
    numbers: LimitNumbers
    # Whether the keys of the limit take turns.
    is_fair: bool
    tasks: tuple[str, ...]


def definitions(tasks: Iterable[LimitedTask], overrides: Overrides) -> tuple[LimitDefinition, ...]:
    """Return the limits of the tasks, sorted by name; ``overrides`` is the setting ``LIMITS``.

    A system check reports tasks that give one limit different numbers. The first task counts then.
    """
    changes = {name: dict(numbers) for name, numbers in overrides}
    found: dict[str, LimitDefinition] = {}
    for task in tasks:
        for limit in task.limits:
            known = found.get(limit.name)
            found[limit.name] = LimitDefinition(
                name=limit.name,
                numbers=known.numbers if known else limit.numbers.overridden(changes.get(limit.name, {})),
                is_fair=known.is_fair if known else limit.is_fair,
                tasks=(*(known.tasks if known else ()), task.identifier),
            )
    return tuple(found[name] for name in sorted(found))
