"""The real jobs as tasks of Django's interface, which must be functions of the module that they are looked for in."""

from __future__ import annotations

from django.db import transaction
from django_tasks import task

from benchmarks.real_jobs import work as functions


@task()
def orm(number: int) -> None:
    functions.pay_order(number)


@task()
def http(number: int) -> None:
    functions.call_service(number)


@task()
async def http_async(number: int) -> None:
    await functions.call_service_async(number)


@task()
def cpu(number: int) -> None:
    functions.compute(number)


TASKS = {"orm": orm, "http": http, "http_async": http_async, "cpu": cpu}


def load(work: str, count: int) -> None:
    with transaction.atomic():
        for number in range(1, count + 1):
            TASKS[work].enqueue(number)
