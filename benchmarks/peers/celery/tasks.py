"""The real jobs as tasks of Celery."""

from __future__ import annotations

import os

from asgiref.sync import async_to_sync
from celery import Celery

from benchmarks.real_jobs.shop import work

app = Celery("benchmark", broker=os.environ["REDIS_URL"])
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)
# Without it, Celery closes Django's connections after every task.
app.conf["CELERY_DB_REUSE_MAX"] = 1_000_000


@app.task(name="orm")
def orm(number: int) -> None:
    work.pay_order(number)


@app.task(name="http")
def http(number: int) -> None:
    work.call_service(number)


@app.task(name="http_async")
def http_async(number: int) -> None:
    """Run the coroutine in the thread of the task: Celery has no event loop."""
    async_to_sync(work.call_service_async)(number)


@app.task(name="cpu")
def cpu(number: int) -> None:
    work.compute(number)


TASKS = {"orm": orm, "http": http, "http_async": http_async, "cpu": cpu}


def load(work: str, count: int) -> None:
    with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
        for number in range(1, count + 1):
            TASKS[work].apply_async((number,), producer=producer)
