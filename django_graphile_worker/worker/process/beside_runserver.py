"""The worker beside ``manage.py runserver``, for development: the setting RUNSERVER_WORKER.

The process that serves requests starts the worker, and keeps one end of a pipe. When it has ended, in whatever way,
the system closes the pipe, and the worker stops.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

from django.utils import autoreload

from django_graphile_worker.worker.process.plan import RELOADER_PIPE
from django_graphile_worker.worker.process.reloader import CHANGED


def start() -> None:
    """Start a worker that ends with this process."""
    threading.Thread(target=_keep_running, name="graphile-worker-runserver", daemon=True).start()


def _keep_running() -> None:
    while _run() == CHANGED:
        # Usually runserver has seen the change, too: then its next process starts the next worker.
        time.sleep(2 * autoreload.StatReloader.SLEEP_TIME)


def _run() -> int:
    reader, writer = os.pipe()
    try:
        worker = subprocess.Popen(
            _command(),
            env=os.environ | {autoreload.DJANGO_AUTORELOAD_ENV: "true", RELOADER_PIPE: str(reader)},
            pass_fds=[reader],
        )
        os.close(reader)
        return worker.wait()
    finally:
        os.close(writer)


def _command() -> list[str]:
    """Return the command of this process, with runworker in the place of runserver."""
    arguments = autoreload.get_child_arguments()
    program = arguments[: len(arguments) - len(sys.argv[1:])]
    return [*program, "runworker", *([] if "--noreload" in sys.argv else ["--reload"])]
