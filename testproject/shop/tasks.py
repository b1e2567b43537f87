"""The tasks of the shop, one of each kind. The worker finds them because the module is called ``tasks``."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from django.utils import timezone

from django_graphile_worker import PermanentFailure, task
from testproject.shop.models import Order


@task
def send_receipt(payload: dict[str, Any]) -> None:
    """A plain task."""


@task(atomic=True)
def book_payment(payload: dict[str, Any]) -> None:
    """Atomic: one transaction marks the order as paid and deletes the job, so this happens exactly once."""
    Order.objects.filter(pk=payload["order"]).update(paid_at=timezone.now())


@task(backoff=timedelta(seconds=1))
def charge_card(payload: dict[str, Any], helpers: Any) -> None:
    """Retried: the first attempt fails, the second succeeds."""
    if helpers.job.attempts < 2:
        raise ConnectionError("The payment provider did not answer.")


@task(max_attempts=3)
def print_invoice(payload: dict[str, Any]) -> None:
    """Permanently failed: no retry can succeed, and the task says so. The admin shows the job."""
    raise PermanentFailure("The printer does not exist any more.")


@task
def resize_photo(payload: dict[str, Any]) -> None:
    """Slow: the job occupies one slot of the worker."""
    time.sleep(payload["seconds"])


@task(queue_name="warehouse")
def move_stock(payload: dict[str, Any]) -> None:
    """In a named queue: the jobs run one after the other, in order, on any number of workers."""
    time.sleep(0.1)


@task(job_key="search-index", job_key_mode="preserve_run_at", schedulable=True)
def refresh_search_index(payload: dict[str, Any]) -> None:
    """With a job key: added many times, run once."""


@task(schedulable=True)
async def fetch_exchange_rates(payload: dict[str, Any]) -> None:
    """Asynchronous: the coroutines of all jobs share one event loop."""
    await asyncio.sleep(0.3)


@task(schedulable=True)
def ask_for_review(payload: dict[str, Any]) -> None:
    """Scheduled: added now, run later."""


@task(cron="* * * * *")
def count_orders(payload: Any) -> None:
    """Recurring: once a minute, on one of the workers."""
    Order.objects.count()


@dataclass
class Newsletter:
    """The payload of a newsletter."""

    subject: str
    audience: Literal["customers", "staff"] = "customers"
    most_items: int = 10
    is_draft: bool = False


@task(schedulable=True)
def send_newsletter(newsletter: Newsletter) -> None:
    """Send a newsletter: people schedule it, in a form with a field for each field of the payload."""
