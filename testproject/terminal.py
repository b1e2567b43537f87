"""Keep Ctrl-C for the program that make started, and away from make, which would call it an error."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def in_foreground() -> Iterator[None]:
    """Be the terminal's only foreground process for the length of the block; without a terminal do nothing."""
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
    """The terminal, if this process belongs to the group in front of it but does not lead a session."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return None
    if os.tcgetpgrp(terminal) == os.getpgrp() and os.getsid(0) != os.getpid():
        return terminal
    os.close(terminal)
    return None


def _give(terminal: int, group: int) -> None:
    # A background process that touches the terminal is stopped, unless it ignores this signal.
    ignored = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(terminal, group)
    except (OSError, PermissionError):
        pass  # the terminal, or whoever had it before, is gone
    finally:
        signal.signal(signal.SIGTTOU, ignored)
