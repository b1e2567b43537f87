"""The end of a process that was a worker's own, when something of a job still runs in it.

Python waits at its end for every thread of every ``ThreadPoolExecutor``, which is also
where ``asyncio.to_thread()`` runs: no daemon flag avoids it. A job that was returned
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

from django_graphile_worker.worker.stop_request import StopState

# Seconds that the exit handlers of other packages (which send reports, or save coverage) may take.
EXIT_HANDLERS_TIMEOUT = 2.0


def end_process(request: StopState, code: int) -> None:
    """End this process at once if a job still runs in it; otherwise make sure that it ends in time.

    Jobs that have ended may have left threads behind, for which Python would wait.
    """
    if request.leaves_jobs_behind:
        leave(code)
    if request.is_made:
        end_in_time(code)


def leave(code: int) -> NoReturn:
    """End this process: write the log, call exit handlers, wait for no thread."""
    end_in_time(code)
    try:
        _flush()
        # On the main thread, where Python calls them: some handlers may not be called on another.
        atexit._run_exitfuncs()
        _flush()
    finally:
        os._exit(code)


def end_in_time(code: int) -> None:
    """Let this process end in its own way, but kill it when that takes longer than the timeout."""
    threading.Thread(target=_end_later, args=(code,), name="graphile-worker-end", daemon=True).start()


def _end_later(code: int) -> None:
    # An exit handler that waits for a job, or for a lock that a job holds, would wait for ever.
    threading.Event().wait(EXIT_HANDLERS_TIMEOUT)
    os._exit(code)


def _flush() -> None:
    for out in (*_log_handlers(), sys.stdout, sys.stderr):
        # A stream that is closed, broken, or None has nothing to write.
        with contextlib.suppress(Exception):
            out.flush()


def _log_handlers() -> Iterator[logging.Handler]:
    for logger in (logging.root, *logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield from logger.handlers
