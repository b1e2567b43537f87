"""Formats jobs, times and tables: for operators in the current time zone, for programs as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.core.management.color import Style
from django.utils import timezone

from django_graphile_worker.jobs import Job
from django_graphile_worker.registry import label_of
from django_graphile_worker.sql.codecs import flags_from
from django_graphile_worker.sql.inspection.job_detail import JobDetail
from django_graphile_worker.sql.inspection.job_list import JobRow, State
from django_graphile_worker.text import escaped, in_largest_unit, shown

GAP = "  "
EMPTY = "-"
# On a terminal, longer cells are cut. Ids of jobs and workers are shorter.
MAX_CELL = 40
NUMBER = re.compile(r"-|[0-9][0-9+/]*")
DAY = 86_400

Paint = Callable[[str], str]


class Cell(NamedTuple):
    """A text, and its colour."""

    text: str
    paint: Paint | None = None


Value = Cell | str | int | None
# A row of a table by the headings of its columns.
Row = Mapping[str, Value]


def _cell(value: Value) -> Cell:
    cell = value if isinstance(value, Cell) else Cell("" if value is None else str(value))
    return cell._replace(text=shown(cell.text) or EMPTY)


def table(rows: Sequence[Row], *, width: int | None = None) -> str:
    """Return the rows below their headings, numbers to the right.

    On a terminal with this ``width``, empty columns are left out and long lines are cut.
    """
    columns = []
    for name in rows[0]:
        cells = [_cell(row[name]) for row in rows]
        if width is not None:
            cells = [_shortened(cell, MAX_CELL) for cell in cells] if name != list(rows[0])[-1] else cells
            if all(cell.text == EMPTY for cell in cells):
                continue
        columns.append([Cell(name), *cells])
    sizes = [max(len(cell.text) for cell in column) for column in columns]
    to_the_right = [all(NUMBER.fullmatch(cell.text) for cell in column[1:]) for column in columns]
    return "\n".join(_line(cells, sizes, to_the_right, width) for cells in zip(*columns, strict=True))


def _line(cells: Sequence[Cell], sizes: Sequence[int], to_the_right: Sequence[bool], width: int | None) -> str:
    parts, start = [], 0
    for cell, size, is_right in zip(cells, sizes, to_the_right, strict=True):
        space = " " * (size - len(cell.text))
        if width is not None:
            room = width - start - (len(space) if is_right else 0)
            if room <= 0:
                break
            cell = _shortened(cell, room)
        text = cell.paint(cell.text) if cell.paint else cell.text
        parts.append(space + text if is_right else text + space)
        start += size + len(GAP)
    return GAP.join(parts).rstrip()


def _shortened(cell: Cell, size: int) -> Cell:
    return cell if len(cell.text) <= size else cell._replace(text=f"{cell.text[: size - 1]}…")


def facts(pairs: Sequence[tuple[str, Value]], *, indent: str = "") -> str:
    """Return names and values, one pair for each line."""
    names = max((len(name) for name, _ in pairs), default=0)
    cells = [(name, _cell(value)) for name, value in pairs]
    return "\n".join(
        f"{indent}{name:<{names}}{GAP}{cell.paint(cell.text) if cell.paint else cell.text}" for name, cell in cells
    )


def indented(text: str) -> str:
    return "\n".join(f"  {escaped(line)}" for line in text.splitlines())


def job_line(job: Job, now: datetime) -> str:
    """Return ``send_receipt #42: run at 2026-05-01 12:00:00 (in 5 m), 0 of 25 attempts used``."""
    parts = [f"run at {both(job.run_at, now)}", f"{job.attempts} of {job.max_attempts} attempts used"]
    parts += [f"queue {shown(job.queue_name)}"] if job.queue_name else []
    parts += [f"key {shown(job.key)}"] if job.key else []
    return f"{shown(job.task_identifier)} #{job.id}: {', '.join(parts)}"


def job_row_as_dict(job: JobRow | JobDetail) -> dict[str, Any]:
    """Return a job from ``sql.inspection`` as a dict for JSON, without the payload, which may be large."""
    same = ("queue_name", "priority", "run_at", "attempts", "attempts_made", "max_attempts", "key")
    return {
        "id": job.id,
        "state": job.state.value,
        "task_identifier": job.task_identifier or "",
        "label": label_of(job.task_identifier or ""),
        **{name: getattr(job, name) for name in same},
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


def capped(number: int, most: int) -> str:
    """Return ``42``, or ``10000+`` for a number above the one at which counting stopped."""
    return str(number) if number <= most else f"{most}+"


def brief_error(error: str | None) -> str:
    """Return the first line of an error, with the name of its class but not of its module."""
    line = (error or "").strip().partition("\n")[0]
    return re.sub(r"^(?:[^\W\d]\w*\.)+(?=[^\W\d]\w*(?::|$))", "", line)


def aware(moment: datetime) -> datetime:
    """Return a time from the database with its time zone; it is naive if the project has USE_TZ = False."""
    return timezone.make_aware(moment, timezone.get_default_timezone()) if timezone.is_naive(moment) else moment


def absolute(moment: datetime) -> str:
    """Return the time in the current time zone."""
    return aware(moment).astimezone(timezone.get_current_timezone()).strftime("%Y-%m-%d %H:%M:%S")


def relative(moment: datetime | None, now: datetime) -> str:
    """Return the distance from now, ``in 5 m`` or ``3 h ago``, or a dash for never."""
    if moment is None:
        return EMPTY
    seconds = (aware(moment) - aware(now)).total_seconds()
    if round(seconds) == 0:
        return "now"
    return f"in {in_largest_unit(seconds)}" if seconds > 0 else f"{in_largest_unit(seconds)} ago"


def both(moment: datetime | None, now: datetime) -> str:
    """Return ``2026-05-01 12:00:00 (in 5 m)``, or a dash for never."""
    return EMPTY if moment is None else f"{absolute(moment)} ({relative(moment, now)})"


def brief(moment: datetime, now: datetime) -> str:
    """Return the distance from now if it is less than a day, else the time to the minute."""
    is_near = abs((aware(moment) - aware(now)).total_seconds()) < DAY
    return relative(moment, now) if is_near else absolute(moment)[:-3]


def iso(moment: datetime | None) -> str | None:
    """Return the time for programs, always in UTC."""
    return None if moment is None else aware(moment).astimezone(UTC).isoformat()
