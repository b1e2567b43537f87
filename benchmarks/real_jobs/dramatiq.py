"""The real jobs as actors of dramatiq."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.real_jobs.settings")
django.setup()

import dramatiq  # noqa: E402
from dramatiq.brokers.redis import RedisBroker  # noqa: E402
from dramatiq.middleware.asyncio import AsyncIO  # noqa: E402

from benchmarks.real_jobs.work import WORK  # noqa: E402

broker = RedisBroker(url=os.environ["REDIS_URL"])
broker.add_middleware(AsyncIO())
dramatiq.set_broker(broker)
ACTORS = {name: dramatiq.actor(actor_name=name)(function) for name, function in WORK.items()}


def load(work: str, count: int) -> None:
    for number in range(1, count + 1):
        ACTORS[work].send(number)
