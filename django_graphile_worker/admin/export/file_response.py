"""The response that sends a file while it is written, and the entry in the log that says who received what."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
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
from django_graphile_worker.admin.export.file_formats import FORMATS, ExportedRow, FileFormat

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
