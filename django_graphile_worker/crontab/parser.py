"""Reads and writes crontabs: text and items from several sources become checked items or one error.

``Draft`` collects the sources. ``parse_crontab(format_item(item))`` returns the item.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, unquote_plus

import json5

from django_graphile_worker.crontab.errors import CrontabMistake, MistakeCollector, Position, raise_for
from django_graphile_worker.crontab.items import CronItem
from django_graphile_worker.crontab.patterns import FIELDS, FIVE_FIELDS, parse_pattern, read_fields, read_shorthand
from django_graphile_worker.crontab.times import EXPECTED_TIME_PHRASE, format_time_phrase, load_zone, parse_time_phrase
from django_graphile_worker.crontab.validation import LONGEST_IDENTIFIER, checked_item, plain_payload
from django_graphile_worker.exceptions import CrontabError, InvalidTypeError
from django_graphile_worker.job_options import (
    LARGEST_MAX_ATTEMPTS,
    LARGEST_PRIORITY,
    MAX_IDENTIFIER_LENGTH,
    MAX_JOB_KEY_LENGTH,
    MAX_QUEUE_NAME_LENGTH,
    SMALLEST_PRIORITY,
    JobKeyMode,
    valid_flags,
    valid_job_key,
    valid_max_attempts,
    valid_priority,
    valid_queue_name,
)
from django_graphile_worker.text import closest

_WORD = re.compile(r"\S+")
_TASK = re.compile(rf"[_a-zA-Z][_a-zA-Z0-9:/-]{{0,{MAX_IDENTIFIER_LENGTH - 1}}}")
_IDENTIFIER = re.compile(rf"[_a-zA-Z][-_a-zA-Z0-9]{{0,{LONGEST_IDENTIFIER - 1}}}")
_QUEUE = re.compile(r"[-a-zA-Z0-9_:]+")
_DIGITS = re.compile(r"[0-9]{1,9}")
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,9}")
# The parser of json5 takes up to 60 ms for every thousand characters.
MAX_JSON5_LENGTH = 20_000
# Characters that need no escape in options, in addition to letters, digits and '_.-~'.
_PLAIN = "/:,"


def parse_crontab(text: str, *, source: str = "crontab") -> tuple[CronItem, ...]:
    """Return the items of a crontab; raise CrontabError with every mistake in it."""
    if not isinstance(text, str):
        raise InvalidTypeError(f"parse_crontab: expected crontab text, got {text!r}.")
    draft = Draft()
    draft.add_text(text, source)
    return draft.finish()


def parse_cron_items(items: Iterable[CronItem]) -> tuple[CronItem, ...]:
    """Return the items with every default filled in; raise CrontabError with every mistake in them."""
    draft = Draft()
    for number, item in enumerate(items, 1):
        draft.add_item(item, number)
    return draft.finish()


@dataclass(slots=True)
class Draft:
    """A crontab that is being collected from any number of sources; ``finish()`` returns its items or raises."""

    placed: list[PlacedItem] = field(default_factory=list)
    mistakes: list[CrontabMistake] = field(default_factory=list)

    def add_text(self, text: str, source: str) -> None:
        collector = MistakeCollector(source)
        self.placed += read_crontab(text, collector)
        self.mistakes += collector.mistakes

    def add_item(self, item: object, number: int, source: str = "CronItem") -> None:
        name = getattr(item, "task", None)
        collector = MistakeCollector(f"{source} {number} ({name})" if isinstance(name, str) else f"{source} {number}")
        if isinstance(item, CronItem):
            checked = checked_item(item, collector)
            if checked is not None:
                self.placed.append(PlacedItem(checked, collector.source, Position(), Position()))
        else:
            collector.add("a CronItem or crontab text", repr(item))
        self.mistakes += collector.mistakes

    def add_schedules(
        self,
        task: str,
        schedules: Iterable[str],
        source: str,
        adjust: Callable[[CronItem], CronItem] = lambda item: item,
    ) -> None:
        """Add the schedules of ``@task(cron=...)``. If a task has several, each is named after its pattern."""
        lines = tuple(schedules)
        collector = MistakeCollector(source)
        for line in lines:
            placed = read_schedule(line, task, collector, named_by_pattern=len(lines) > 1)
            if placed is not None:
                self.placed.append(replace(placed, item=adjust(placed.item)))
        self.mistakes += collector.mistakes

    def copy(self) -> Draft:
        """Return a copy, to which a caller can add mistakes of its own."""
        return Draft(self.placed.copy(), self.mistakes.copy())

    def add_mistake(self, source: str, expected: str, text: str, at: Position | None = None) -> None:
        collector = MistakeCollector(source)
        collector.add(expected, text, at)
        self.mistakes += collector.mistakes

    def refuse_unknown_tasks(self, known: Container[str], names: Iterable[str]) -> None:
        names = tuple(names)
        hints: dict[str, str] = {}
        for placed in self.placed:
            task = placed.item.task
            if task not in known:
                # Search once for each name: the search is slow, and a name may occur in thousands of lines.
                if task not in hints:
                    near = closest(task, names)
                    hints[task] = f" (did you mean {near!r}?)" if near else ""
                expected = f"the identifier of a registered task{hints[task]}"
                self.add_mistake(placed.source, expected, task, placed.task_at)

    def finish(self) -> tuple[CronItem, ...]:
        self._refuse_duplicates()
        sources = {source: index for index, source in enumerate(dict.fromkeys(found.source for found in self.mistakes))}
        raise_for(sorted(self.mistakes, key=lambda found: (sources[found.source], found.line or 0, found.column or 0)))
        return tuple(placed.item for placed in self.placed)

    def _refuse_duplicates(self) -> None:
        first: dict[str, PlacedItem] = {}
        for placed in self.placed:
            earlier = first.setdefault(placed.item.name, placed)
            if earlier is not placed:
                line = f" line {earlier.name_at.line}" if earlier.name_at.line else ""
                expected = (
                    f"an identifier of its own ({earlier.source}{line} already has this identifier): "
                    "choose another with ?id= or identifier="
                )
                self.add_mistake(placed.source, expected, placed.item.name, placed.name_at)


@dataclass(frozen=True, slots=True)
class PlacedItem:
    """An item with the positions of its task and its name, which later checks quote."""

    item: CronItem
    source: str
    task_at: Position
    name_at: Position


def read_crontab(text: str, collector: MistakeCollector) -> list[PlacedItem]:
    """Return the items of all lines without mistakes; report the mistakes to the collector."""
    items = []
    # Not splitlines(), which also splits at characters that a payload may contain.
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        written = line.rstrip()
        if written and not written.lstrip().startswith("#"):
            item = _read_line(written, Position(number, 1, written), collector, None)
            items += [item] if item else []
    return items


def read_schedule(
    text: str, task: str, collector: MistakeCollector, *, named_by_pattern: bool = False
) -> PlacedItem | None:
    """Return the item of ``@task(cron="0 4 * * * ?fill=1d")``: a crontab line without its task."""
    written = text.strip()
    placed = _read_line(written, Position(None, 1, written), collector, task)
    if placed and named_by_pattern and placed.name_at == placed.task_at:
        # Name the item after its pattern, not after its position: reordering the list must not rename its items.
        return replace(placed, item=replace(placed.item, identifier=f"{task} {placed.item.match}"))
    return placed


def _read_line(line: str, start: Position, collector: MistakeCollector, task: str | None) -> PlacedItem | None:
    before = len(collector)
    words = list(_WORD.finditer(line))
    head = _head(words)
    fields = 1 if head and head[0][0].startswith("@") else len(FIELDS)
    wanted = fields + (task is None)
    if len(head) < wanted and not (fields == 1 and head):
        ending = ", then a task identifier" if task is None else ""
        collector.add(FIVE_FIELDS + ending, line.strip(), start.shifted(words[0].start() if words else 0))
        return None
    match = " ".join([word[0] for word in head[:fields]])
    _read_time(match, head[:fields], start, collector)
    task_at, rest_at = start, head[fields - 1].end()
    if task is None:
        task_at, rest_at = _read_task(head[fields:], line, start, collector)
    values, name_offset = _read_rest(line, rest_at, start, collector)
    if len(collector) > before:
        return None
    name = head[fields][0] if task is None else task
    item = CronItem(name, match, **{"identifier": name, **values})
    return PlacedItem(item, collector.source, task_at, start.shifted(name_offset) if name_offset else task_at)


def _head(words: list[re.Match[str]]) -> list[re.Match[str]]:
    """Return the words before the options and the payload."""
    head = []
    for word in words:
        if word[0].startswith(("?", "{")):
            break
        head.append(word)
    return head


def _read_time(text: str, words: list[re.Match[str]], start: Position, collector: MistakeCollector) -> None:
    try:
        parse_pattern(text)
    except CrontabError:
        _report_mistakes(words, start, collector)


def _report_mistakes(words: list[re.Match[str]], start: Position, collector: MistakeCollector) -> None:
    """Read the time fields again, and report each mistake with its position in the line."""
    placed = [(word[0], start.shifted(word.start())) for word in words]
    if len(placed) == 1:
        [(text, at)] = placed
        read_shorthand(text, collector, at)
    else:
        read_fields(placed, collector)


def _read_task(
    words: list[re.Match[str]], line: str, start: Position, collector: MistakeCollector
) -> tuple[Position, int]:
    """Return the position of the task, and the offset of its end."""
    if not words:
        collector.add("a task identifier after the time", "", start.shifted(len(line)))
        return start, len(line)
    at = start.shifted(words[0].start())
    if _TASK.fullmatch(words[0][0]):
        return at, words[0].end()
    expected = "a task identifier (letters, digits, '_', '-', ':' and '/') after five time fields"
    collector.add(expected, words[0][0], at)
    # All words before the options are part of the same mistake.
    return at, words[-1].end()


def _read_rest(line: str, offset: int, start: Position, collector: MistakeCollector) -> tuple[dict[str, Any], int]:
    """Read options and a payload, both optional. Return the values they set, and the offset of ``id`` (0: none)."""
    values: dict[str, Any] = {}
    name_offset = 0
    word = _WORD.search(line, offset)
    if word and word[0].startswith("?"):
        values, offsets = read_options(word[0], collector, start.shifted(word.start()))
        name_offset = word.start() + offsets["identifier"] if "identifier" in offsets else 0
        word = _WORD.search(line, word.end())
    if word is None:
        return values, name_offset
    text, at = line[word.start() :], start.shifted(word.start())
    if text.startswith("{"):
        values["payload"] = read_payload(text, collector, at)
    else:
        collector.add("options like ?fill=2d, a payload like {limit: 10}, or the end of the line", text, at)
    return values, name_offset


@dataclass(frozen=True, slots=True)
class Option:
    """An option: the attribute of the item that it sets, and how its value is read."""

    attribute: str
    read: Callable[[str], Any]
    expected: str


def _like(expression: re.Pattern[str], convert: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if not expression.fullmatch(text):
            raise ValueError(text)
        return convert(text)

    return read


def _read_job_key_mode(text: str) -> JobKeyMode:
    mode = JobKeyMode(text)
    if mode is JobKeyMode.UNSAFE_DEDUPE:
        raise ValueError(text)
    return mode


def _read_zone(text: str) -> str:
    return load_zone(text).key


OPTIONS = {
    "id": Option(
        "identifier",
        _like(_IDENTIFIER, str),
        "an identifier of letters, digits, '_' and '-' that starts with a letter or '_'",
    ),
    "fill": Option("backfill_period", parse_time_phrase, EXPECTED_TIME_PHRASE),
    "max": Option(
        "max_attempts",
        _like(_DIGITS, lambda text: valid_max_attempts(int(text))),
        f"a number of attempts from 1 to {LARGEST_MAX_ATTEMPTS}",
    ),
    "queue": Option(
        "queue_name",
        _like(_QUEUE, valid_queue_name),
        f"a queue name of 1 to {MAX_QUEUE_NAME_LENGTH} letters, digits, '_', '-' and ':'",
    ),
    "jobKey": Option("job_key", valid_job_key, f"a job key of 1 to {MAX_JOB_KEY_LENGTH} characters"),
    "jobKeyMode": Option("job_key_mode", _read_job_key_mode, "'replace' or 'preserve_run_at'"),
    "priority": Option(
        "priority",
        _like(_WHOLE_NUMBER, lambda text: valid_priority(int(text))),
        f"a whole number from {SMALLEST_PRIORITY} to {LARGEST_PRIORITY}",
    ),
    # graphile-worker does not have these two.
    "tz": Option("time_zone", _read_zone, "an IANA time zone like Europe/Paris"),
    "flags": Option("flags", lambda text: valid_flags(text.split(",")), "flags separated by commas, like slow,remote"),
}


def read_options(text: str, collector: MistakeCollector, at: Position) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the attributes that ``?a=1&b=2`` sets, and the offset of each value in the text."""
    values: dict[str, Any] = {}
    offsets: dict[str, int] = {}
    if text == "?":
        collector.add(f"options like ?fill=2d&max=10 (known: {', '.join(OPTIONS)})", text, at)
    offset = 1
    for pair in text[1:].split("&"):
        if pair:
            _read_option(pair, offset, values, offsets, collector, at)
        offset += len(pair) + 1
    return values, offsets


def _read_option(
    pair: str, offset: int, values: dict[str, Any], offsets: dict[str, int], collector: MistakeCollector, at: Position
) -> None:
    written_key, _, written_value = pair.partition("=")
    key, value = unquote_plus(written_key), unquote_plus(written_value)
    option = OPTIONS.get(key)
    if option is None:
        collector.add(f"one of the options {', '.join(OPTIONS)}", written_key, at.shifted(offset))
        return
    if option.attribute in offsets:
        collector.add(f"the option {key!r} once", pair, at.shifted(offset))
        return
    offsets[option.attribute] = value_offset = offset + len(written_key) + 1
    try:
        values[option.attribute] = option.read(value)
    except ValueError as error:
        # The error of a time zone suggests a similar name; the other options have one fixed sentence.
        expected = str(error) if key == "tz" else option.expected
        collector.add(f"{key} to be {expected}", written_value, at.shifted(value_offset))


class Json5Error(ValueError):
    """The text is not JSON5; ``offset`` is the position of the first character that does not fit."""

    def __init__(self, message: str, text: str, offset: int) -> None:
        before = text[:offset]
        line, column = before.count("\n") + 1, offset - before.rfind("\n")
        super().__init__(f"{message} at line {line}, column {column}")
        self.offset = offset


def read_payload(text: str, collector: MistakeCollector, at: Position) -> dict[str, Any] | None:
    """Return the object of a JSON5 text; report mistakes to the collector."""
    if not text.endswith("}"):
        collector.add("a JSON5 object like {limit: 10} at the end of the line", text, at)
        return None
    try:
        payload = parse_json5(text)
    except Json5Error as error:
        offset = min(error.offset, len(text) - 1)
        expected = "JSON5 (quote text, close every bracket)"
        if len(text) > MAX_JSON5_LENGTH:
            expected = f"JSON, or JSON5 of at most {MAX_JSON5_LENGTH:,} characters"
        collector.add(expected, text[offset:], at.shifted(offset))
        return None
    except RecursionError:
        collector.add("a payload that is nested less deeply", text[:20] + "…", at)
        return None
    try:
        return plain_payload(payload)
    except ValueError as error:
        collector.add(str(error), text, at)
        return None


def parse_json5(text: str) -> Any:
    """Return the value of a text of JSON or JSON5; raise Json5Error, or RecursionError if it is nested too deeply."""
    try:
        return json.loads(text)
    except ValueError as error:
        if len(text) > MAX_JSON5_LENGTH:
            offset = error.pos if isinstance(error, json.JSONDecodeError) else 0
            message = f"No JSON, and too long for JSON5 (at most {MAX_JSON5_LENGTH:,} characters): error"
            raise Json5Error(message, text, offset) from None
    try:
        value, error_text, offset = json5.parse(text)
        if error_text is None:
            # A round trip through JSON: json5 leaves the two halves of an escaped surrogate pair apart.
            return json.loads(json.dumps(value))
    except ValueError as error:
        raise Json5Error(str(error), text, 0) from None
    if " at column " not in error_text:
        raise Json5Error(error_text, text, offset)
    found = text[offset : offset + 1]
    raise Json5Error(f"Unexpected {found!r}" if found else "Unexpected end of the text", text, offset)


def format_item(item: CronItem) -> str:
    """Write an item as one line of a crontab; raise ValueError if its ``match`` is a callable."""
    if not isinstance(item.match, str):
        raise ValueError(f"expected a crontab item with a pattern, got an item with a callable: {item.match!r}")
    words = [item.match, item.task]
    options = "&".join(f"{key}={quote(value, safe=_PLAIN)}" for key, value in _options(item))
    if options:
        words.append(f"?{options}")
    if item.payload is not None:
        words.append(json.dumps(dict(item.payload), ensure_ascii=False))
    return " ".join(words)


def _options(item: CronItem) -> Iterator[tuple[str, str]]:
    if item.name != item.task:
        yield "id", item.name
    if item.period:
        yield "fill", format_time_phrase(item.period)
    plain = {
        "max": item.max_attempts,
        "queue": item.queue_name,
        "jobKey": item.job_key,
        "jobKeyMode": item.job_key_mode,
        "priority": item.priority,
        "tz": item.zone and item.zone.key,
    }
    yield from ((key, str(value)) for key, value in plain.items() if value is not None)
    if item.flags:
        yield "flags", ",".join(item.flags)
