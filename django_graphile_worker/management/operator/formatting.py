"""Formats jobs, times and tables: for operators in the current time zone and for a terminal, for programs as JSON."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.core.management.color import Style
from django.utils import timezone

from django_graphile_worker.jobs import Job
from django_graphile_worker.registry import label_of
from django_graphile_worker.sql.codecs import flags_from
from django_graphile_worker.sql.inspection.job_detail import JobDetail
from django_graphile_worker.sql.inspection.job_search.counts import Count
from django_graphile_worker.sql.inspection.job_search.criteria import State
from django_graphile_worker.sql.inspection.job_search.search import JobRow
from django_graphile_worker.text import in_largest_unit, shown


def job_line(job: Job, now: datetime) -> str:
    """Return ``send_receipt #42: run at 2026-05-01 12:00:00 (in 5 m), 0 of 25 attempts used``."""
    parts = [f"run at {both(job.run_at, now)}", f"{job.attempts} of {job.max_attempts} attempts used"]
    parts += [f"queue {shown(job.queue_name)}"] if job.queue_name else []
    parts += [f"key {shown(job.key)}"] if job.key else []
    return f"{shown(job.task_identifier)} #{job.id}: {', '.join(parts)}"


def job_as_dict(job: Job) -> dict[str, Any]:
    """Return a job from the API as a dict for JSON."""
    return dataclasses.asdict(job)


def job_row_as_dict(job: JobRow | JobDetail) -> dict[str, Any]:
    """Return a job from ``sql.inspection`` as a dict for JSON, without the payload, which may be large."""
    return {
        "id": job.id,
        "state": job.state.value,
        "task_identifier": job.task_identifier or "",
        "label": label_of(job.task_identifier or ""),
        "queue_name": job.queue_name,
        "priority": job.priority,
        "run_at": job.run_at,
        "attempts": job.attempts,
        "attempts_made": job.attempts_made,
        "max_attempts": job.max_attempts,
        "key": job.key,
        "flags": flags_from(job.flags_text),
        "locked_at": job.locked_at,
        "locked_by": job.locked_by,
        "last_error": job.error if isinstance(job, JobRow) else job.last_error,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
    }


def state_cell(state: State, style: Style) -> Cell:
    """Return the state of a job in its colour."""
    paints = {
        State.RUNNING: style.MIGRATE_LABEL,
        State.READY: style.SUCCESS,
        State.LIMITED: style.WARNING,
        State.RETRYING: style.WARNING,
        State.FAILED: style.ERROR,
    }
    return Cell(state.value, paints.get(state))


def counted(number: int, noun: str) -> str:
    """Return ``1 job``, ``2 jobs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def capped(count: Count) -> str:
    """Return ``42``, or ``10000+`` if the count stopped before the end."""
    return f"{count.number}{'+' if count.is_more else ''}"


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


def aware(moment: datetime) -> datetime:
    """Return a time from the database with its time zone; it is naive if the project has USE_TZ = False."""
    return timezone.make_aware(moment, timezone.get_default_timezone()) if timezone.is_naive(moment) else moment


def absolute(moment: datetime) -> str:
    """Return the time in the current time zone."""
    return aware(moment).astimezone(timezone.get_current_timezone()).strftime("%Y-%m-%d %H:%M:%S")


def relative(moment: datetime, now: datetime) -> str:
    """Return the distance from now: ``in 5 m`` or ``3 h ago``."""
    seconds = (aware(moment) - aware(now)).total_seconds()
    if round(seconds) == 0:
        return "now"
    return f"in {in_largest_unit(seconds)}" if seconds > 0 else f"{in_largest_unit(seconds)} ago"


def both(moment: datetime | None, now: datetime) -> str:
    """Return ``2026-05-01 12:00:00 (in 5 m)``, or a dash for never."""
    return "-" if moment is None else f"{absolute(moment)} ({relative(moment, now)})"


def iso(moment: datetime | None) -> str | None:
    """Return the time for programs, always in UTC."""
    return None if moment is None else aware(moment).astimezone(UTC).isoformat()
