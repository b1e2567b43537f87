"""Ctrl-C reaches only the program that make started: make itself would report an error."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def in_foreground() -> Iterator[None]:
    """Make this process the only foreground process of the terminal during the block; do nothing without a terminal."""
    terminal = _controlling_terminal()
    if terminal is None:
        yield
        return
    previous = os.tcgetpgrp(terminal)
    try:
        os.setpgid(0, 0)
        _give(terminal, os.getpgrp())
        yield
    finally:
        _give(terminal, previous)
        os.close(terminal)


def _controlling_terminal() -> int | None:
    """Return the terminal if this process is in its foreground group and does not lead a session, else None."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return None
    if os.tcgetpgrp(terminal) == os.getpgrp() and os.getsid(0) != os.getpid():
        return terminal
    os.close(terminal)
    return None


def _give(terminal: int, group: int) -> None:
    # The kernel stops a background process that changes the terminal, unless the process ignores this signal.
    ignored = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(terminal, group)
    except (OSError, PermissionError):
        pass  # the terminal, or the previous group, does not exist any more
    finally:
        signal.signal(signal.SIGTTOU, ignored)
