"""The log lines that a worker writes to standard error if the project does not configure logging."""

from __future__ import annotations

import logging
import sys
from copy import copy
from typing import Any

from django.utils.termcolors import make_style

from django_graphile_worker.printable_text import escaped

ROOT_LOGGER = "django_graphile_worker"
# By the option --verbosity.
LEVELS = {0: logging.ERROR, 1: logging.INFO, 2: logging.INFO, 3: logging.DEBUG}
COLORS = {
    logging.DEBUG: make_style(fg="blue"),
    logging.WARNING: make_style(fg="yellow"),
    logging.ERROR: make_style(fg="red"),
    logging.CRITICAL: make_style(fg="red", opts=("bold",)),
}
# In a line about a job, only the word for its outcome is coloured.
OUTCOMES = {
    "succeeded": make_style(fg="green"),
    "failed": make_style(fg="yellow", opts=("bold",)),
    "permanently failed": make_style(fg="red", opts=("bold",)),
    "interrupted": make_style(fg="yellow"),
    "claim lost": make_style(fg="yellow"),
}


def set_up_logging(*, verbosity: int, is_colored: bool) -> None:
    """Write the worker's log to standard error, unless the project's LOGGING has a handler for it."""
    logger = logging.getLogger(ROOT_LOGGER)
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter(is_colored=is_colored, is_detailed=verbosity > 1))
    logger.addHandler(handler)
    logger.setLevel(LEVELS.get(verbosity, logging.INFO))


class Formatter(logging.Formatter):
    """The time and the message, with a colour for the level or for the outcome of a job."""

    def __init__(self, *, is_colored: bool, is_detailed: bool = True) -> None:
        super().__init__("%(asctime)s %(message)s", datefmt="%H:%M:%S")
        self._is_colored = is_colored
        # Whether to write the tracebacks of failures that are retried; tracebacks of final failures are always written.
        self._is_detailed = is_detailed

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Return the traceback without the worker's own frames; empty when no other frame is left."""
        # Late import: a worker that starts has no exception to write.
        from django_graphile_worker.worker.execution.error_text import trace

        # The text of an error may contain control sequences, which a terminal would execute.
        return "\n".join(map(escaped, trace(ei[1]).split("\n")))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        text = super().formatMessage(record)
        if not self._is_colored:
            return text
        outcome = getattr(record, "outcome", None)
        paint = OUTCOMES.get(str(outcome))
        if paint and f" {outcome} " in text:
            return text.replace(f" {outcome} ", f" {paint(str(outcome))} ", 1)
        paint = COLORS.get(record.levelno)
        return paint(text) if paint else text

    def format(self, record: logging.LogRecord) -> str:
        # A copy: logging stores the text of a traceback on the record, and other handlers would write this text.
        record = copy(record)
        record.exc_text = None
        if record.levelno < logging.ERROR and not self._is_detailed:
            record.exc_info = None
        return super().format(record)
