"""The log of a worker on its standard error, alone in a project that does not configure logging."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO

import pytest

from django_graphile_worker.logs import console
from django_graphile_worker.logs.console import ConsoleHandler, Formatter

PACKAGE = logging.getLogger("django_graphile_worker")
JOBS = logging.getLogger("django_graphile_worker.jobs")


class ConsoleLog:
    """The handler of a worker, and what it has written."""

    def __init__(self) -> None:
        self.stream = StringIO()
        self.root = logging.Logger("root")  # noqa: LOG001 - the real root logger has handlers
        self.handler = ConsoleHandler(self.stream, Formatter(is_colored=False))

    @property
    def text(self) -> str:
        """What has been written so far."""
        return self.stream.getvalue()

    def lines(self) -> list[str]:
        """Write what waits; return all lines without their times."""
        self.handler.flush()
        return [line.partition(" ")[2] for line in self.text.splitlines()]


@contextmanager
def lone_console() -> Iterator[ConsoleLog]:
    """Have the loggers of the package write to the log of a worker, and to nothing else."""
    log, level = ConsoleLog(), PACKAGE.level
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PACKAGE, "handlers", [log.handler])
        # pytest has handlers of its own on the root logger, and adds them to loggers that do not propagate.
        patch.setattr(PACKAGE, "parent", log.root)
        patch.setattr(console, "_root", log.root)
        patch.setattr(console, "_console", log.handler)
        # The writer writes its first batch at once. The tests flush the rest.
        patch.setattr(console, "PAUSE", 3_600.0)
        PACKAGE.setLevel(logging.INFO)
        try:
            yield log
        finally:
            PACKAGE.setLevel(level)
            log.handler.writer.close()
