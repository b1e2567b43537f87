"""The end of a process that was a worker's own, when something of a job still runs in it.

Python waits at its end for every thread of every ``ThreadPoolExecutor``, which is also
where ``asyncio.to_thread()`` runs: no daemon flag avoids it. A job that was given back
would go on there, beside its second run, and the process would outlive its stop.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator
from typing import NoReturn

# What others registered to be done at the end (to send reports, to save coverage) gets this long.
PATIENCE = 2.0


def leave(code: int) -> NoReturn:
    """End this process: the log is written, exit handlers are called, no thread is waited for."""
    end_in_time(code)
    try:
        _flush()
        # On this thread, the main one, as always: some of them may not be called from another.
        atexit._run_exitfuncs()
        _flush()
    finally:
        os._exit(code)


def end_in_time(code: int) -> None:
    """This process is to end, in whatever way it does: what no job waits for any more keeps it no longer than this."""
    threading.Thread(target=_end_later, args=(code,), name="graphile-worker-end", daemon=True).start()


def _end_later(code: int) -> None:
    """A handler that waits for the job, or for a lock that the job holds, waits for ever."""
    threading.Event().wait(PATIENCE)
    os._exit(code)


def _flush() -> None:
    for out in (*_log_handlers(), sys.stdout, sys.stderr):
        # One that is closed, broken, or not there at all has nothing to write.
        with contextlib.suppress(Exception):
            out.flush()


def _log_handlers() -> Iterator[logging.Handler]:
    for logger in (logging.root, *logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield from logger.handlers
