"""What a worker changes of Python's garbage collector: it pauses while modules load, and then runs less often.

Only ``runworker`` uses it: a reusable app must not change the collector of a web process.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# How many objects more than before make the collector look for garbage: by default until Python 3.12, and since 3.13.
FORMER_DEFAULT = 700
DEFAULT = 2000


def collect_less_often() -> None:
    """Have the collector run as often as newer versions of Python do, unless the project has decided how often.

    A claim makes a thousand objects and a release ends them, so that the former default finds as many objects more and
    no garbage, several times for each claim. That takes a twentieth of the CPU time that a worker needs for a job.
    """
    if gc.get_threshold()[0] == FORMER_DEFAULT:
        gc.set_threshold(DEFAULT)


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
