"""Crontab text in, items out: every mistake of every line is found in one go."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

from django_graphile_worker.crontab.errors import Notebook, Position
from django_graphile_worker.crontab.fields import FIELDS
from django_graphile_worker.crontab.items import CronItem
from django_graphile_worker.crontab.json5_payload import read_payload
from django_graphile_worker.crontab.options import read_options
from django_graphile_worker.crontab.patterns import FIVE_FIELDS, parse_pattern, read_fields, read_shorthand
from django_graphile_worker.exceptions import CrontabError
from django_graphile_worker.jobs import MAX_IDENTIFIER_LENGTH

_WORD = re.compile(r"\S+")
_TASK = re.compile(rf"[_a-zA-Z][_a-zA-Z0-9:/-]{{0,{MAX_IDENTIFIER_LENGTH - 1}}}")


class PlacedItem(NamedTuple):
    """An item, and where it was written: later checks have to name the place."""

    item: CronItem
    source: str
    task_at: Position
    name_at: Position


def read_crontab(text: str, notebook: Notebook) -> list[PlacedItem]:
    """The items of a crontab; those of lines with mistakes are left out."""
    items = []
    # Not splitlines(): only a line feed ends a line, whatever a payload contains.
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        written = line.rstrip()
        if written and not written.lstrip().startswith("#"):
            item = _read_line(written, Position(number, 1, written), notebook, None)
            items += [item] if item else []
    return items


def read_schedule(text: str, task: str, notebook: Notebook, *, named_by_pattern: bool = False) -> PlacedItem | None:
    """A line without its task: what stands in ``@task(cron="0 4 * * * ?fill=1d")``."""
    written = text.strip()
    placed = _read_line(written, Position(None, 1, written), notebook, task)
    if placed and named_by_pattern and placed.name_at == placed.task_at:
        # The pattern, not the position in the list: reordering a list must not rename its items.
        return placed._replace(item=replace(placed.item, identifier=f"{task} {placed.item.match}"))
    return placed


def _read_line(line: str, start: Position, notebook: Notebook, task: str | None) -> PlacedItem | None:
    before = len(notebook)
    words = list(_WORD.finditer(line))
    head = _head(words)
    fields = 1 if head and head[0][0].startswith("@") else len(FIELDS)
    wanted = fields + (task is None)
    if len(head) < wanted and not (fields == 1 and head):
        ending = ", then a task identifier" if task is None else ""
        notebook.note(FIVE_FIELDS + ending, line.strip(), start.shifted(words[0].start() if words else 0))
        return None
    match = " ".join([word[0] for word in head[:fields]])
    _read_time(match, head[:fields], start, notebook)
    task_at, rest_at = start, head[fields - 1].end()
    if task is None:
        task_at, rest_at = _read_task(head[fields:], line, start, notebook)
    values, name_offset = _read_rest(line, rest_at, start, notebook)
    if len(notebook) > before:
        return None
    name = head[fields][0] if task is None else task
    item = CronItem(name, match, **{"identifier": name, **values})
    return PlacedItem(item, notebook.source, task_at, start.shifted(name_offset) if name_offset else task_at)


def _head(words: list[re.Match[str]]) -> list[re.Match[str]]:
    """The words before the options and the payload."""
    head = []
    for word in words:
        if word[0].startswith(("?", "{")):
            break
        head.append(word)
    return head


def _read_time(text: str, words: list[re.Match[str]], start: Position, notebook: Notebook) -> None:
    try:
        parse_pattern(text)
    except CrontabError:
        _note_mistakes(words, start, notebook)


def _note_mistakes(words: list[re.Match[str]], start: Position, notebook: Notebook) -> None:
    """Read the time once more, to say where in the line each mistake is."""
    placed = [(word[0], start.shifted(word.start())) for word in words]
    if len(placed) == 1:
        [(text, at)] = placed
        read_shorthand(text, notebook, at)
    else:
        read_fields(placed, notebook)


def _read_task(words: list[re.Match[str]], line: str, start: Position, notebook: Notebook) -> tuple[Position, int]:
    """Where the task stands, and where it ends."""
    if not words:
        notebook.note("a task identifier after the time", "", start.shifted(len(line)))
        return start, len(line)
    at = start.shifted(words[0].start())
    if _TASK.fullmatch(words[0][0]):
        return at, words[0].end()
    expected = "a task identifier (letters, digits, '_', '-', ':' and '/') after five time fields"
    notebook.note(expected, words[0][0], at)
    # Whatever stands between here and the options belongs to the same mistake.
    return at, words[-1].end()


def _read_rest(line: str, offset: int, start: Position, notebook: Notebook) -> tuple[dict[str, Any], int]:
    """Options, then payload; both may be missing, nothing may follow. And where the name was given, 0 if nowhere."""
    values: dict[str, Any] = {}
    name_offset = 0
    word = _WORD.search(line, offset)
    if word and word[0].startswith("?"):
        values, offsets = read_options(word[0], notebook, start.shifted(word.start()))
        name_offset = word.start() + offsets["identifier"] if "identifier" in offsets else 0
        word = _WORD.search(line, word.end())
    if word is None:
        return values, name_offset
    text, at = line[word.start() :], start.shifted(word.start())
    if text.startswith("{"):
        values["payload"] = read_payload(text, notebook, at)
    else:
        notebook.note("options like ?fill=2d, a payload like {limit: 10}, or the end of the line", text, at)
    return values, name_offset
