"""The real jobs as actors of dramatiq."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.real_jobs.settings")
django.setup()

import dramatiq  # noqa: E402
from dramatiq.brokers.redis import RedisBroker  # noqa: E402
from dramatiq.middleware.asyncio import AsyncIO  # noqa: E402

from benchmarks.real_jobs.shop import work  # noqa: E402

broker = RedisBroker(url=os.environ["REDIS_URL"])
broker.add_middleware(AsyncIO())
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="orm")
def orm(number: int) -> None:
    work.pay_order(number)


@dramatiq.actor(actor_name="http")
def http(number: int) -> None:
    work.call_service(number)


@dramatiq.actor(actor_name="http_async")
async def http_async(number: int) -> None:
    await work.call_service_async(number)


@dramatiq.actor(actor_name="cpu")
def cpu(number: int) -> None:
    work.compute(number)


ACTORS = {"orm": orm, "http": http, "http_async": http_async, "cpu": cpu}


def load(work: str, count: int) -> None:
    for number in range(1, count + 1):
        ACTORS[work].send(number)
