"""Python's garbage collector, and what it need not look at."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def objects_that_stay() -> Iterator[None]:
    """Leave the collector out while modules are loaded, and give it their objects as if they had survived often.

    There are tens of thousands of them, and none is garbage. To look through them for some, again and again, takes
    longer than anything else in the app's start.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # What somebody else has frozen must stay so.
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if was_enabled:
            gc.enable()
