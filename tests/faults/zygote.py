"""Starts worker processes fast: the modules are imported once, and each worker is a fork that sets Django up.

The script reads a JSON object per line from its standard input, answers each with the id of the new process, and writes
the exit code of each process to a file. It runs with nothing but the checkout on its path. At the end of its input it
kills the workers that still run: a test run that was killed leaves none behind.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent.parent

# Modules that take long to import, and do not need Django to be set up.
PRELOADED = (
    "asyncio",
    "concurrent.futures.thread",
    "django.contrib.contenttypes",
    "django.core.checks",
    "django.core.management.commands.migrate",
    "django.db.backends.postgresql.base",
    "django.db.models",
    "django.db.migrations.executor",
    "django.utils.autoreload",
    "django_graphile_worker.management.commands.runworker",
    "multiprocessing.context",
    "psycopg",
    "psutil",
)


def main() -> None:
    sys.path[0] = str(CHECKOUT)
    for name in PRELOADED:
        importlib.import_module(name)
    from django.conf import settings

    assert not settings.configured, "expected the settings to be read by each worker for itself"
    wakeup, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writer)
    serve(wakeup)


def serve(wakeup: int) -> None:
    exit_files: dict[int, str] = {}
    while True:
        ready, _, _ = select.select([sys.stdin, wakeup], [], [])
        if wakeup in ready:
            os.read(wakeup, 4096)
            reap(exit_files)
        if sys.stdin in ready:
            line = sys.stdin.readline()
            if not line:
                kill_all(exit_files)
                return
            order = json.loads(line)
            pid = os.fork()
            if pid == 0:
                become_worker(order)
            exit_files[pid] = order["exit_file"]
            print(pid, flush=True)  # noqa: T201
            # The process has already ended.
            reap(exit_files)


def reap(exit_files: dict[int, str]) -> None:
    for pid in list(exit_files):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            path = Path(exit_files.pop(pid))
            unfinished = path.with_suffix(".unfinished")
            unfinished.write_text(str(os.waitstatus_to_exitcode(status)))
            unfinished.rename(path)


def kill_all(process_ids: Iterable[int]) -> None:
    """Kill the workers, and the processes that they started in their session."""
    for pid in process_ids:
        # The group may have ended already, or does not exist yet.
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)


def restore_signals() -> None:
    """Reset signals that a shell ignores for background jobs: a service does not ignore them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def become_worker(order: dict[str, Any]) -> None:
    """Detach the child from its parent, then do what manage.py does."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    restore_signals()
    os.setsid()
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = order["argv"]
    # The exit code after an exception, whose traceback is printed as in a process that is not forked.
    code = 1
    try:
        from django.core.management import execute_from_command_line

        execute_from_command_line(sys.argv)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
