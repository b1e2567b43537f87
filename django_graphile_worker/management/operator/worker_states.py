"""Derives the states of workers from their rows in the database."""

from __future__ import annotations

from typing import Any

from django_graphile_worker import conf
from django_graphile_worker.sql.inspection.lock_holders import Holder


def has_fresh_heartbeat(holder: Holder) -> bool:
    return holder.is_alive(conf.current().worker_timeout)


def worker_state(holder: Holder) -> str:
    """Return alive, stopping, silent, or unregistered: workers that do not register have no heartbeat."""
    if not holder.is_registered:
        return "unregistered"
    if not has_fresh_heartbeat(holder):
        return "silent"
    return "stopping" if holder.metadata.get("is_stopping") is True else "alive"


def running_jobs(holder: Holder) -> list[dict[str, Any]]:
    """Return the jobs that the worker reports as running."""
    running = holder.metadata.get("running")
    return [job for job in running if isinstance(job, dict)] if isinstance(running, list) else []


def tasks_of(holder: Holder) -> frozenset[str]:
    """Return the tasks that the worker reports as its own."""
    tasks = holder.metadata.get("tasks")
    return frozenset(filter(lambda task: isinstance(task, str), tasks)) if isinstance(tasks, list) else frozenset()
