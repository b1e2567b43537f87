"""The file of ``export`` and ``import``: its text, and what an import of it would change."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from django_graphile_worker.management.operator.schedules.checking import mistakes_in
from django_graphile_worker.management.operator.schedules.entries import (
    FIELDS,
    Entry,
    defaults,
    entry_of,
    is_same,
    read_entry,
)
from django_graphile_worker.management.operator.schedules.found import of_code
from django_graphile_worker.models import Schedule
from django_graphile_worker.text import quoted, shown

KEY = "schedules"


def text_of(schedules: Iterable[Schedule]) -> str:
    """Return the file of these schedules. The same schedules give the same text."""
    entries = [entry_of(schedule) for schedule in sorted(schedules, key=lambda each: each.name)]
    return json.dumps({KEY: entries}, indent=2, ensure_ascii=False)


def read(path: str) -> list[Entry]:
    """Return the entries of a file, or of standard input for ``-``; raise CommandError if it is no such file."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        content = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except OSError as error:
        raise CommandError(f"Expected a file that can be read, got {path!r}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise CommandError(
            f"{path}: expected JSON, as graphile_worker schedules export writes it, got an error: {error}."
        ) from error
    entries = content.get(KEY) if isinstance(content, dict) else None
    if not isinstance(entries, list) or len(content) != 1:
        raise CommandError(
            f'{path}: expected {{"{KEY}": [...]}}, as graphile_worker schedules export writes it, '
            f"got {quoted(content)}."
        )
    return [read_entry(entry, f"schedule number {number}") for number, entry in enumerate(entries, 1)]


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {quoted(twice)} twice in one object")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name}, which is not JSON")


@dataclass(frozen=True, slots=True)
class Change:
    """A schedule with its new values, and the fields that differ: before and after."""

    schedule: Schedule
    fields: dict[str, tuple[Any, Any]]


@dataclass(slots=True)
class Difference:
    """What an import changes."""

    added: list[Schedule] = field(default_factory=list)
    changed: list[Change] = field(default_factory=list)
    deleted: list[Schedule] = field(default_factory=list)
    unchanged: int = 0
    # Schedules that the file does not have, and that stay.
    kept: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.changed or self.deleted)


def difference(entries: Sequence[Entry], present: Mapping[str, Schedule], *, deletes_others: bool) -> Difference:
    """Return what an import of the entries changes; raise CommandError with every mistake in them."""
    found, mistakes = Difference(), []
    named: set[str] = set()
    for entry in entries:
        mistakes += [_mistake(entry, name, text) for name, texts in entry.mistakes.items() for text in texts]
        name = entry.values.get("name")
        if name is not None and name in named:
            mistakes.append(f"{entry.name}: expected one entry for each name, got several.")
        elif name is not None:
            named.add(name)
            mistakes += _compare(found, entry, present.get(name))
    if mistakes:
        lines = "\n".join(shown(mistake) for mistake in mistakes)
        raise CommandError(f"Nothing was imported. Correct these mistakes:\n{lines}")
    others = [each for name, each in sorted(present.items()) if name not in named and not each.is_from_code]
    found.deleted, found.kept = (others, 0) if deletes_others else ([], len(others))
    return found


def _compare(found: Difference, entry: Entry, before: Schedule | None) -> list[str]:
    """Add an entry to the difference, and return its mistakes."""
    if before is not None and before.is_from_code:
        return [of_code(before)]
    wanted = defaults() | entry.values
    if before is not None and "paused_until" not in entry.values:
        # A file that does not mention the pause does not end it.
        wanted["paused_until"] = before.paused_until
    schedule = Schedule() if before is None else before
    changes = {
        name: (getattr(schedule, name), wanted[name])
        for name in FIELDS
        if name in wanted and not is_same(name, getattr(schedule, name), wanted[name])
    }
    if before is not None and not changes and not entry.mistakes:
        found.unchanged += 1
        return []
    for name, (_, value) in changes.items():
        setattr(schedule, name, value)
    if before is None:
        found.added.append(schedule)
    else:
        found.changed.append(Change(schedule, changes))
    checked = {name: texts for name, texts in mistakes_in(schedule).items() if name not in entry.mistakes}
    return [_mistake(entry, name, text) for name, texts in checked.items() for text in texts]


def _mistake(entry: Entry, name: str, text: str) -> str:
    return f"{entry.name}: {name}: {text}" if name in FIELDS else f"{entry.name}: {text}"
