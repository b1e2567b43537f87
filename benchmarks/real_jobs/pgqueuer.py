"""The real jobs as entrypoints of pgqueuer: ``python -m benchmarks.real_jobs.pgqueuer`` runs a worker on uvloop.

BATCH, LIMIT and THREADS are its settings. Its own command, which uses uvloop, too, does not start with the version of
typer that pip installs beside it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import django
import uvloop

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.real_jobs.settings")
django.setup()

from pgqueuer import PgQueuer  # noqa: E402
from pgqueuer.db import AsyncpgDriver  # noqa: E402
from pgqueuer.models import Job  # noqa: E402
from pgqueuer.queries import Queries  # noqa: E402

from benchmarks.real_jobs.work import WORK  # noqa: E402


def entrypoint(function: Callable[[int], Any]) -> Callable[[Job], Any]:
    """Return a coroutine function, as entrypoints must be; blocking code belongs into ``asyncio.to_thread()``."""

    async def run_coroutine(job: Job) -> None:
        await function(int(job.payload or b"0"))

    async def run_in_thread(job: Job) -> None:
        await asyncio.to_thread(function, int(job.payload or b"0"))

    return run_coroutine if asyncio.iscoroutinefunction(function) else run_in_thread


async def work() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(int(os.environ["THREADS"])))
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(os.environ["ASYNCPG_URL"])))
    for name, function in WORK.items():
        queue.entrypoint(name)(entrypoint(function))
    limit = os.environ.get("LIMIT")
    await queue.run(batch_size=int(os.environ["BATCH"]), max_concurrent_tasks=int(limit) if limit else None)


def prepare() -> None:
    asyncio.run(_install())


async def _install() -> None:
    connection = await asyncpg.connect(os.environ["ASYNCPG_URL"])
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


def load(work: str, count: int) -> None:
    asyncio.run(_load(work, count))


async def _load(work: str, count: int) -> None:
    connection = await asyncpg.connect(os.environ["ASYNCPG_URL"])
    payloads = [str(number).encode() for number in range(1, count + 1)]
    await Queries(AsyncpgDriver(connection)).enqueue([work] * count, payloads, [0] * count)
    await connection.close()


if __name__ == "__main__":
    uvloop.run(work())
