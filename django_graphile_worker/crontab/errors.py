"""What is wrong with a crontab, where, and what was expected instead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from django_graphile_worker.exceptions import CrontabError

_LONGEST_TEXT = 80


@dataclass(frozen=True, slots=True)
class CrontabMistake:
    """One mistake. ``line`` and ``column`` count from 1; a ``CronItem`` has no line."""

    expected: str
    text: str
    line: int | None = None
    column: int | None = None
    source: str = "crontab"
    context: str = ""

    def __str__(self) -> str:
        """One readable paragraph: the place, the complaint, and a caret under the text."""
        headline = f"{self._place()}: expected {self.expected}, got {_shortened(self.text)!r}"
        if self.column is None or not self.context:
            return headline
        # Tabs stay tabs, so that the caret stands under the text in any terminal.
        before = self.context[: self.column - 1]
        indent = "".join("\t" if character == "\t" else " " for character in before)
        return f"{headline}\n    {self.context}\n    {indent}{'^' * max(1, len(self.text))}"

    def _place(self) -> str:
        parts = [self.source]
        if self.line is not None:
            parts.append(f"line {self.line}")
        if self.column is not None:
            parts.append(f"column {self.column}")
        return parts[0] + (f" {', '.join(parts[1:])}" if parts[1:] else "")


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


class Notebook:
    """Collects the mistakes of one text, so that all of them can be told at once."""

    def __init__(self, source: str = "crontab") -> None:
        self.source = source
        self.mistakes: list[CrontabMistake] = []

    def note(self, expected: str, text: str, at: Position | None = None) -> None:
        at = at or Position()
        self.mistakes.append(CrontabMistake(expected, text, at.line, at.column, self.source, at.context))

    def __len__(self) -> int:
        return len(self.mistakes)


class Position(NamedTuple):
    """A place in a text; ``context`` is the whole line."""

    line: int | None = None
    column: int | None = None
    context: str = ""

    def shifted(self, characters: int) -> Position:
        return Position(self.line, None if self.column is None else self.column + characters, self.context)


def raise_for(mistakes: Iterable[CrontabMistake]) -> None:
    """Raise one error that tells every mistake, if there is any."""
    found = tuple(mistakes)
    if found:
        raise CrontabError(_message(found), mistakes=found)


def _message(mistakes: tuple[CrontabMistake, ...]) -> str:
    count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    paragraphs = "\n".join(str(mistake) for mistake in mistakes)
    return f"{count} in the crontab, so nothing of it is scheduled:\n{paragraphs}"
