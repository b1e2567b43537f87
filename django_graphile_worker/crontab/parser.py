"""Reads crontab text into items, and reports every mistake of every line."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from django_graphile_worker.crontab.errors import MistakeCollector, Position
from django_graphile_worker.crontab.fields import FIELDS
from django_graphile_worker.crontab.items import CronItem
from django_graphile_worker.crontab.json5_payload import read_payload
from django_graphile_worker.crontab.options import read_options
from django_graphile_worker.crontab.patterns import FIVE_FIELDS, parse_pattern, read_fields, read_shorthand
from django_graphile_worker.exceptions import CrontabError
from django_graphile_worker.job_options import MAX_IDENTIFIER_LENGTH

_WORD = re.compile(r"\S+")
_TASK = re.compile(rf"[_a-zA-Z][_a-zA-Z0-9:/-]{{0,{MAX_IDENTIFIER_LENGTH - 1}}}")


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
