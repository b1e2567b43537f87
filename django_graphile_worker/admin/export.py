"""Files of what a list shows, as CSV or JSON, written while the rows are read: any number takes little memory.

``file_response()`` sends a file and writes an entry to the log that says who received what.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db.models import Model
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_graphile_worker.admin import audit
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


DEFAULT_FORMAT = "csv"


def requested_format(request: HttpRequest) -> FileFormat:
    return FORMATS.get(request.GET.get("format", ""), FORMATS[DEFAULT_FORMAT])


def file_response(
    request: HttpRequest,
    steps: Iterator[Sequence[ExportedRow]],
    columns: Sequence[str],
    *,
    name: str,
    model: type[Model],
    description: str,
) -> StreamingHttpResponse:
    """Return a response that writes the file while the rows are read.

    The first step is read before the response begins, so that an error of the database is a page and not a broken file.
    An error in a later step breaks the connection: the browser reports that the file is incomplete.
    """
    file_format = requested_format(request)
    first = next(steps, ())
    logged = _logged(chain([first], steps), request, model, file_format, description)
    text = file_format.write(logged, columns)
    content: Any = _asynchronous(text) if isinstance(request, ASGIRequest) else text
    file_name = f"{name}-{timezone.localtime():%Y-%m-%d-%H%M%S}.{file_format.extension}"
    headers = {
        "Content-Disposition": f'attachment; filename="{file_name}"',
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cache-Control": "no-store",
        # A proxy that collects the whole response would need the memory that streaming saves.
        "X-Accel-Buffering": "no",
    }
    return StreamingHttpResponse(content, content_type=file_format.content_type, headers=headers)


def _logged(
    steps: Iterable[Sequence[ExportedRow]],
    request: HttpRequest,
    model: type[Model],
    file_format: FileFormat,
    description: str,
) -> Iterator[Sequence[ExportedRow]]:
    """Yield the steps. Write an entry to the log at once, and the number of rows at the end, also if it is early."""
    what = {"format": file_format.extension.upper(), "search": description}
    begun = audit.Message(gettext_noop("Export as %(format)s of “%(search)s”: begun."), what)
    entry = audit.log(request, model, "", _("Export"), begun)
    number, is_complete = 0, False
    try:
        for rows in steps:
            number += len(rows)
            yield rows
        is_complete = True
    finally:
        audit.change_message(
            entry, audit.Message(_outcome(number, is_complete=is_complete), {**what, "number": number})
        )


def _outcome(number: int, *, is_complete: bool) -> str:
    if is_complete and number == 1:
        return gettext_noop("Export as %(format)s of “%(search)s”: 1 row.")
    if is_complete:
        return gettext_noop("Export as %(format)s of “%(search)s”: %(number)s rows.")
    return gettext_noop("Export as %(format)s of “%(search)s”: stopped. Rows: %(number)s.")


def _next_part(parts: Generator[str, None, None]) -> str | None:
    return next(parts, None)


async def _asynchronous(parts: Generator[str, None, None]) -> AsyncIterator[str]:
    """Yield the parts for a server with an event loop, which would otherwise collect them all before it sends one."""
    try:
        while (part := await sync_to_async(_next_part)(parts)) is not None:
            yield part
    finally:
        # If the browser has left, the entry in the log is completed in the thread of the database connection.
        await sync_to_async(parts.close)()
