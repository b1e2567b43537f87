"""Formats tables for a terminal: aligned, no wider than the terminal, and without control characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

from django_graphile_worker.text import shown

GAP = "  "
EMPTY = "-"
# The least width to which a column is shortened.
NARROWEST = 8

Paint = Callable[[str], str]


class Column(NamedTuple):
    """A heading, and the alignment of the cells below it."""

    name: str
    is_number: bool = False
    # Whether cells may be shortened on a narrow terminal. Ids are never shortened.
    gives_way: bool = False


class Cell(NamedTuple):
    """A text, and its colour."""

    text: str
    paint: Paint | None = None


Row = Sequence[Cell | str]


def width(text: str) -> int:
    """Return the number of columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_places(character) for character in text)


def _places(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def table(columns: Sequence[Column], rows: Sequence[Row], *, most: int | None) -> str:
    """Return the rows below their headings, or, if shortened cells do not fit, as blocks with a line for each cell."""
    cells = [[_cell(value) for value in row] for row in rows]
    if most is not None:
        columns, cells = _filled(columns, cells)
    widths = [
        max([width(column.name), *(width(row[index].text) for row in cells)]) for index, column in enumerate(columns)
    ]
    if most is not None:
        widths = _narrowed(columns, widths, most)
    if most is not None and _total(widths) > most:
        return _blocks(columns, cells)
    heading = [Cell(column.name) for column in columns]
    return "\n".join(_line(columns, row, widths) for row in [heading, *cells])


def _cell(value: Cell | str) -> Cell:
    cell = value if isinstance(value, Cell) else Cell(value)
    return cell._replace(text=shown(cell.text) or EMPTY)


def _filled(columns: Sequence[Column], rows: list[list[Cell]]) -> tuple[Sequence[Column], list[list[Cell]]]:
    """Drop the columns that are empty in every row."""
    kept = [index for index in range(len(columns)) if any(row[index].text != EMPTY for row in rows)]
    return [columns[index] for index in kept], [[row[index] for index in kept] for row in rows]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _narrowed(columns: Sequence[Column], widths: Sequence[int], most: int) -> list[int]:
    """Narrow the widest column that may be shortened, repeatedly, until the table fits."""
    narrowed = list(widths)
    giving = [index for index, column in enumerate(columns) if column.gives_way]
    while _total(narrowed) > most:
        wide = [index for index in giving if narrowed[index] > max(NARROWEST, width(columns[index].name))]
        if not wide:
            break
        widest = max(wide, key=lambda index: narrowed[index])
        narrowed[widest] -= 1
    return narrowed


def _line(columns: Sequence[Column], row: Sequence[Cell], widths: Sequence[int]) -> str:
    parts = [_placed(column, cell, places) for column, cell, places in zip(columns, row, widths, strict=True)]
    return GAP.join(parts).rstrip()


def _placed(column: Column, cell: Cell, places: int) -> str:
    text = _shortened(cell.text, places)
    space = " " * (places - width(text))
    painted = cell.paint(text) if cell.paint else text
    return space + painted if column.is_number else painted + space


def _shortened(text: str, places: int) -> str:
    if width(text) <= places:
        return text
    while width(text) > places - 1:
        text = text[:-1]
    return f"{text}…"


def _blocks(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> str:
    names = max(width(column.name) for column in columns)
    blocks = [
        "\n".join(
            f"{column.name:<{names}}{GAP}{cell.paint(cell.text) if cell.paint else cell.text}"
            for column, cell in zip(columns, row, strict=True)
        )
        for row in rows
    ]
    return "\n\n".join(blocks)


def brief_error(error: str | None) -> str:
    """Return the first line of an error, with the name of its class but not of its module."""
    line = (error or "").strip().partition("\n")[0]
    return re.sub(r"^(?:[^\W\d]\w*\.)+(?=[^\W\d]\w*(?::|$))", "", line)


def facts(pairs: Sequence[tuple[str, Cell | str]], *, indent: str = "") -> str:
    """Return names and values, one pair for each line."""
    names = max((width(name) for name, _ in pairs), default=0)
    lines = []
    for name, value in pairs:
        cell = _cell(value)
        lines.append(f"{indent}{name:<{names}}{GAP}{cell.paint(cell.text) if cell.paint else cell.text}")
    return "\n".join(lines)
