"""Run the work in a loop: ``python -m benchmarks.real_jobs.bare <work> <count> <processes> <at once>``."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import django


def run(name: str, numbers: range, at_once: int) -> None:
    """Do the work of one process."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.real_jobs.settings")
    django.setup()
    # Late import: Django must be set up first.
    from benchmarks.real_jobs.work import WORK

    work = WORK[name]
    if asyncio.iscoroutinefunction(work):
        asyncio.run(run_coroutines(work, numbers, at_once))
    elif at_once == 1:
        for number in numbers:
            work(number)
    else:
        with ThreadPoolExecutor(at_once) as pool:
            for _ in pool.map(work, numbers):
                pass


async def run_coroutines(work: Callable[[int], Awaitable[Any]], numbers: range, at_once: int) -> None:
    left = iter(numbers)

    async def one_after_the_other() -> None:
        for number in left:
            await work(number)

    await asyncio.gather(*(one_after_the_other() for _ in range(at_once)))


def main(name: str, count: int, processes: int, at_once: int) -> None:
    if processes == 1:
        run(name, range(1, count + 1), at_once)
    else:
        spawn = get_context("spawn")
        shares = [range(1 + number, count + 1, processes) for number in range(processes)]
        children = [spawn.Process(target=run, args=(name, share, at_once)) for share in shares]
        for child in children:
            child.start()
        for child in children:
            child.join()
    # The benchmark reads the CPU time of a process that still exists, and then ends it.
    time.sleep(60)


def load(work: str, count: int) -> None:
    """Do nothing: there is no queue."""


if __name__ == "__main__":
    main(sys.argv[1], *(int(argument) for argument in sys.argv[2:]))
