"""The end of a process in which something of a job still runs."""

from __future__ import annotations

import subprocess
import sys

# A thread of an executor that never ends: Python would wait for it at its end. A handler that keeps its lines until it
# is flushed, and an exit handler.
LEAVING = """
import atexit, logging, logging.handlers, sys, threading
from concurrent.futures import ThreadPoolExecutor
from django_graphile_worker.worker.process import worker_process
worker_process.EXIT_HANDLERS_TIMEOUT = {seconds}
ThreadPoolExecutor(1).submit(threading.Event().wait)
kept = logging.handlers.MemoryHandler(100, flushLevel=100, target=logging.StreamHandler(sys.stdout))
logging.getLogger("a.project").addHandler(kept)
logging.getLogger("a.project").error("a line of the log")
atexit.register({handler})
worker_process.{function}(7)
"""


def _leave(function: str, handler: str, seconds: float = 1.0) -> subprocess.CompletedProcess[str]:
    code = LEAVING.format(function=function, handler=handler, seconds=seconds)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


def test_leave__writes_the_log_calls_exit_handlers_and_waits_for_no_thread() -> None:
    left = _leave("leave", "print, 'an exit handler'", seconds=600.0)
    assert (left.returncode, left.stdout.splitlines()) == (7, ["a line of the log", "an exit handler"])


def test_leave__waits_for_an_exit_handler_only_for_a_while() -> None:
    left = _leave("leave", "threading.Event().wait")
    assert (left.returncode, left.stdout.splitlines()) == (7, ["a line of the log"])


def test_end_in_time__ends_a_process_that_waits_for_a_thread() -> None:
    assert _leave("end_in_time", "print, 'an exit handler'").returncode == 7
