"""The real jobs as tasks of Django's interface."""

from __future__ import annotations

from django.db import transaction
from django_tasks import task

from benchmarks.real_jobs.shop import work


@task()
def orm(number: int) -> None:
    work.pay_order(number)


@task()
def http(number: int) -> None:
    work.call_service(number)


@task()
async def http_async(number: int) -> None:
    await work.call_service_async(number)


@task()
def cpu(number: int) -> None:
    work.compute(number)


TASKS = {"orm": orm, "http": http, "http_async": http_async, "cpu": cpu}


def load(work: str, count: int) -> None:
    with transaction.atomic():
        for number in range(1, count + 1):
            TASKS[work].enqueue(number)
