"""Ends the copies of a worker that a job makes with ``os.fork()``.

A forked process has a copy of one thread, the thread that forked, and of everything else: the claims of the worker, its
connections, its signal handlers. If the code of a job returns in such a process, the thread would continue as a
second, unregistered worker, on connections that it shares with the first. So every place that calls code of a site
checks afterwards whether it is still in the process in which it began.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable

# How many forks lie between this process and the process that loaded this module. Compared instead of os.getpid(): the
# check follows every job, and a system call would cost more than the rest of the check.
generation = 0
# Functions to call in every forked process, to undo what must not continue there.
_in_child: dict[str, Callable[[], None]] = {}
_is_watching = False
# The signal mask of a thread while it forks.
_forking = threading.local()


def watch() -> None:
    """Count forks from now on. Called before the first job; calling it again changes nothing."""
    global _is_watching
    if not _is_watching and hasattr(os, "register_at_fork"):
        _is_watching = True
        os.register_at_fork(before=_hold_signals, after_in_parent=_release_signals, after_in_child=_note_fork)


def call_in_child(name: str, function: Callable[[], None] | None) -> None:
    """Register a function under a name, to be called in every forked process; None removes it."""
    if function is None:
        _in_child.pop(name, None)
    else:
        _in_child[name] = function


def end_child(born_in: int, error: BaseException | None = None) -> None:
    """End this process at once, unless it is of that generation. ``error`` is what the job's code raised.

    Nothing is flushed and no exit handler is called: buffers and connections are copies of the worker's.
    """
    if generation == born_in:
        return
    with contextlib.suppress(OSError):
        os.write(2, _message(error).encode(errors="replace"))
    os._exit(_status(error))


def _hold_signals() -> None:
    """Hold signals back in the thread that forks.

    A signal that reaches the new process before it has undone the handlers of the worker would be lost: the copy of
    a handler would count it as a request to stop a worker that does not exist there.
    """
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _note_fork() -> None:
    global generation
    generation += 1
    for function in list(_in_child.values()):
        # A function that fails must not keep the others from being called.
        with contextlib.suppress(Exception):
            function()
    if signal.SIGINT in signal.sigpending() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # The process has done nothing yet, so that it may end at once. Python ignores what a function of a fork raises:
        # a KeyboardInterrupt here would be lost.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _release_signals()


def _message(error: BaseException | None) -> str:
    how = "returned" if error is None else f"raised {type(error).__name__}"
    return (
        f"Process {os.getpid()}, forked by a job of process {os.getppid()}, {how} into the worker: it is ended, as a "
        "copy of a worker must not continue. End a forked process with os._exit().\n"
    )


def _status(error: BaseException | None) -> int:
    """Return the exit status with which Python would end: that of sys.exit(), or 1 for any other error."""
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        return 1
    return 0 if error.code is None else error.code & 0xFF if isinstance(error.code, int) else 1
