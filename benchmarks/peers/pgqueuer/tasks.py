"""The real jobs as entrypoints of pgqueuer."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

import asyncpg
import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.real_jobs.settings")
django.setup()

from pgqueuer import PgQueuer  # noqa: E402
from pgqueuer.db import AsyncpgDriver  # noqa: E402
from pgqueuer.models import Job  # noqa: E402
from pgqueuer.queries import Queries  # noqa: E402

from benchmarks.real_jobs.shop import work  # noqa: E402


def number_of(job: Job) -> int:
    return int(job.payload or b"0")


async def main() -> PgQueuer:
    """Return the entrypoints. They must be coroutines; blocking code belongs into ``asyncio.to_thread()``."""
    threads = int(os.environ.get("THREADS", "10"))
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(threads))
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(os.environ["ASYNCPG_URL"])))

    @queue.entrypoint("orm")
    async def orm(job: Job) -> None:
        await asyncio.to_thread(work.pay_order, number_of(job))

    @queue.entrypoint("http")
    async def http(job: Job) -> None:
        await asyncio.to_thread(work.call_service, number_of(job))

    @queue.entrypoint("http_async")
    async def http_async(job: Job) -> None:
        await work.call_service_async(number_of(job))

    @queue.entrypoint("cpu")
    async def cpu(job: Job) -> None:
        await asyncio.to_thread(work.compute, number_of(job))

    return queue


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
