"""The thread of an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

NAME = "graphile-worker-async"


def start_loop(
    main: Callable[[asyncio.AbstractEventLoop], None],
) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    """Start a thread that runs ``main`` with a new event loop; leave no loop behind if the system allows no thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=main, args=(loop,), name=NAME, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        loop.close()
        raise
    return loop, thread
