"""The real jobs as tasks of Celery."""

from __future__ import annotations

import os

from asgiref.sync import async_to_sync
from celery import Celery

from benchmarks.real_jobs.work import WORK, call_service_async

app = Celery("benchmark", broker=os.environ["REDIS_URL"])
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)
# Without it, Celery closes Django's connections after every task.
app.conf["CELERY_DB_REUSE_MAX"] = 1_000_000


def call_service_in_loop(number: int) -> None:
    """Run the coroutine in the thread of the task: Celery has no event loop."""
    async_to_sync(call_service_async)(number)


FUNCTIONS = WORK | {"http_async": call_service_in_loop}
TASKS = {name: app.task(name=name)(function) for name, function in FUNCTIONS.items()}


def load(work: str, count: int) -> None:
    with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
        for number in range(1, count + 1):
            TASKS[work].apply_async((number,), producer=producer)
