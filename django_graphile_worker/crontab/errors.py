"""Mistakes in a crontab: what was expected, what was found, and where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django_graphile_worker.exceptions import CrontabError

_LONGEST_TEXT = 80
_LONGEST_CONTEXT = 400


@dataclass(frozen=True, slots=True)
class CrontabMistake:
    """A mistake in a crontab. ``line`` and ``column`` count from 1; a ``CronItem`` has no line."""

    expected: str
    text: str
    line: int | None = None
    column: int | None = None
    source: str = "crontab"
    context: str = ""

    def __str__(self) -> str:
        """Return a paragraph: the place, what was expected, and the line with carets under the mistake."""
        headline = f"{self._place()}: expected {self.expected}, got {_shortened(self.text)!r}"
        if self.column is None or not self.context:
            return headline
        excerpt, before = self._excerpt(self.column - 1)
        # Keep tabs, so that the carets are below the mistake whatever the tab width of the terminal is.
        indent = "".join("\t" if character == "\t" else " " for character in before)
        carets = "^" * max(1, min(len(self.text), len(excerpt) - len(before)))
        return f"{headline}\n    {excerpt}\n    {indent}{carets}"

    def _excerpt(self, offset: int) -> tuple[str, str]:
        """Return the line, or the part of a long line around the mistake, and its text before the mistake.

        A line with thousands of mistakes is printed for each of them: whole lines would take quadratic time and space.
        """
        if len(self.context) <= _LONGEST_CONTEXT:
            return self.context, self.context[:offset]
        start = max(0, offset - _LONGEST_CONTEXT // 2)
        end = start + _LONGEST_CONTEXT
        opening, closing = "…" if start else "", "…" if end < len(self.context) else ""
        return f"{opening}{self.context[start:end]}{closing}", f"{opening}{self.context[start:offset]}"

    def _place(self) -> str:
        parts = [self.source]
        if self.line is not None:
            parts.append(f"line {self.line}")
        if self.column is not None:
            parts.append(f"column {self.column}")
        return parts[0] + (f" {', '.join(parts[1:])}" if parts[1:] else "")


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


class MistakeCollector:
    """A list of the mistakes of one source, so that one error can name all of them."""

    def __init__(self, source: str = "crontab") -> None:
        self.source = source
        self.mistakes: list[CrontabMistake] = []

    def add(self, expected: str, text: str, at: Position | None = None) -> None:
        at = at or Position()
        self.mistakes.append(CrontabMistake(expected, text, at.line, at.column, self.source, at.context))

    def __len__(self) -> int:
        return len(self.mistakes)


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a text; ``context`` is the whole line."""

    line: int | None = None
    column: int | None = None
    context: str = ""

    def shifted(self, characters: int) -> Position:
        return Position(self.line, None if self.column is None else self.column + characters, self.context)


def raise_for(mistakes: Iterable[CrontabMistake]) -> None:
    """Raise one error with every mistake, if there are any."""
    found = tuple(mistakes)
    if found:
        raise CrontabError(_message(found), mistakes=found)


def _message(mistakes: tuple[CrontabMistake, ...]) -> str:
    count = "1 error" if len(mistakes) == 1 else f"{len(mistakes)} errors"
    paragraphs = "\n".join(str(mistake) for mistake in mistakes)
    return f"{count} in the crontab, so nothing of it is scheduled:\n{paragraphs}"
