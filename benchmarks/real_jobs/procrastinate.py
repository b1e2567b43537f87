"""The real jobs as tasks of Procrastinate."""

from __future__ import annotations

from procrastinate.contrib.django import app

from benchmarks.real_jobs.work import WORK

BATCH = 1000
TASKS = {name: app.task(name=name)(function) for name, function in WORK.items()}


def load(work: str, count: int) -> None:
    for first in range(1, count + 1, BATCH):
        last = min(first + BATCH, count + 1)
        TASKS[work].batch_defer(*({"number": number} for number in range(first, last)))
