"""Ends the copies of a worker that a job makes with ``os.fork()``.

A forked process has one thread, the one that forked, and a copy of everything else: the claims of the worker, its
connections, its signal handlers. When the code of a job returns in such a process, the thread would go on as a second
worker that nobody knows, on connections that it shares with the first. So every place that calls code of a site asks
afterwards whether it is still in the process that it began in.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

# How many forks lie between this process and the one that loaded this module. Compared rather than os.getpid(): it is
# asked after every job, and a system call would cost more than the rest of it.
generation = 0
# Called in every forked process: what may not go on there undoes itself.
_in_child: dict[str, Callable[[], None]] = {}
_is_watching = False


def watch() -> None:
    """Notice forks from now on; to be called before the first job. Calling it again changes nothing."""
    global _is_watching
    if not _is_watching and hasattr(os, "register_at_fork"):
        _is_watching = True
        os.register_at_fork(after_in_child=_note_fork)


def call_in_child(name: str, function: Callable[[], None] | None) -> None:
    """Have a function called in every forked process; None takes it back."""
    if function is None:
        _in_child.pop(name, None)
    else:
        _in_child[name] = function


def end_child(born_in: int, error: BaseException | None = None) -> None:
    """End this process, at once, unless it is the one of that generation. ``error`` is what the job's code raised.

    Nothing is flushed and no exit handler is called: buffers and connections are copies of the worker's.
    """
    if generation == born_in:
        return
    with contextlib.suppress(OSError):
        os.write(2, _message(error).encode(errors="replace"))
    os._exit(_status(error))


def _note_fork() -> None:
    global generation
    generation += 1
    for function in list(_in_child.values()):
        # What cannot be undone is no reason to keep the rest.
        with contextlib.suppress(Exception):
            function()


def _message(error: BaseException | None) -> str:
    how = "returned" if error is None else f"raised {type(error).__name__}"
    return (
        f"Process {os.getpid()}, forked by a job of process {os.getppid()}, {how} into the worker: it is ended, as a "
        "copy of a worker must not go on. End a forked process with os._exit().\n"
    )


def _status(error: BaseException | None) -> int:
    """As Python would end: sys.exit() says it, any other error is 1."""
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        return 1
    return 0 if error.code is None else error.code & 0xFF if isinstance(error.code, int) else 1
