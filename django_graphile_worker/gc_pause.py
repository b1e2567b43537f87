"""A pause of Python's garbage collector while a worker loads its modules.

Only ``runworker`` uses it: a reusable app must not change the collector of a web process.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the collector while modules are loaded, then move their objects to its oldest generation.

    Loading modules creates tens of thousands of objects, and none of them is garbage. Without the pause, the collector
    examines them many times, which takes longer than anything else in the start of the app.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # unfreeze() would also unfreeze objects that other code has frozen.
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if was_enabled:
            gc.enable()
