"""The real jobs as tasks of Procrastinate."""

from __future__ import annotations

from procrastinate.contrib.django import app

from benchmarks.real_jobs.shop import work

BATCH = 1000


@app.task(name="orm")
def orm(number: int) -> None:
    work.pay_order(number)


@app.task(name="http")
def http(number: int) -> None:
    work.call_service(number)


@app.task(name="http_async")
async def http_async(number: int) -> None:
    await work.call_service_async(number)


@app.task(name="cpu")
def cpu(number: int) -> None:
    work.compute(number)


TASKS = {"orm": orm, "http": http, "http_async": http_async, "cpu": cpu}


def load(work: str, count: int) -> None:
    for first in range(1, count + 1, BATCH):
        last = min(first + BATCH, count + 1)
        TASKS[work].batch_defer(*({"number": number} for number in range(first, last)))
