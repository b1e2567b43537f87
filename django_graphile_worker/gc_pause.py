"""A pause of Python's garbage collector while a worker loads its modules.

Only ``runworker`` uses it: a reusable app does not touch the collector of a web process.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the collector while modules are loaded, then let it treat their objects as long-lived.

    Modules make tens of thousands of objects, none of which is garbage. Searching them again and again takes longer
    than anything else in the start of the app.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # Objects that other code has frozen must stay frozen.
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if was_enabled:
            gc.enable()
