"""Writes rows as CSV or JSON, part by part."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django_graphile_worker.admin.formatting import EARLIEST, LATEST

ExportedRow = Mapping[str, Any]

# Programs for spreadsheets run a cell that begins with one of these as a formula, also in their wide forms. Where the
# comma is the decimal sign, they separate cells at semicolons, and do not see quotes inside a line: a cell begins after
# each semicolon, tab and line break.
_FORMULA = re.compile(r"(?P<start>^|[;\t\r\n])(?=[^\S\t\r\n]*+[=+\-@\uff1d\uff0b\uff0d\uff20])")


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A kind of file: the end of its name, its content type, and the function that writes it."""

    extension: str
    content_type: str
    write: Any


def write_csv(steps: Iterable[Sequence[ExportedRow]], columns: Sequence[str]) -> Iterator[str]:
    """Yield the text of a CSV file: the names of the columns, then a part for each step."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(columns)
    for rows in steps:
        writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    text = str(plain(value)) if not isinstance(value, dict | list) else to_json(value)
    # The apostrophe makes a spreadsheet show the cell as text.
    safe = _FORMULA.sub(r"\g<start>'", text)
    return f"'{safe}" if safe[:1] in ("\t", "\r", "\n") else safe


def write_json(steps: Iterable[Sequence[ExportedRow]], columns: Sequence[str]) -> Iterator[str]:
    """Yield the text of a JSON array with an object on each line. A file that was cut off is not valid JSON."""
    separator = "[\n"
    for rows in steps:
        objects = [to_json({column: plain(row.get(column)) for column in columns}) for row in rows]
        if objects:
            yield separator + ",\n".join(objects)
            separator = ",\n"
    yield "\n]\n" if separator == ",\n" else "[]\n"


def plain(value: Any) -> Any:
    """Return a time as text of ISO 8601, and infinite times as PostgreSQL writes them; other values as they are."""
    if not isinstance(value, datetime):
        return value
    if value >= LATEST:
        return "infinity"
    return "-infinity" if value <= EARLIEST else value.isoformat()


def to_json(value: Any) -> str:
    """Return JSON that UTF-8 can encode: write half a surrogate pair, which JSON allows, as an escape."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


FORMATS = {
    "csv": FileFormat("csv", "text/csv; charset=utf-8", write_csv),
    "json": FileFormat("json", "application/json; charset=utf-8", write_json),
}
