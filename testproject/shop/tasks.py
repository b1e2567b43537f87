"""The shop's tasks: one of each kind that a site has. The worker finds them because the module is called tasks."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

from django.utils import timezone

from django_graphile_worker import PermanentFailure, task
from testproject.shop.models import Order


@task
def send_receipt(payload: dict[str, Any]) -> None:
    """The everyday task: does its work and is done."""


@task(atomic=True)
def book_payment(payload: dict[str, Any]) -> None:
    """Atomic: the order is marked as paid and the job deleted in one transaction, so exactly once."""
    Order.objects.filter(pk=payload["order"]).update(paid_at=timezone.now())


@task(backoff=timedelta(seconds=1))
def charge_card(payload: dict[str, Any], helpers: Any) -> None:
    """Fails at first, as networks do, and is tried again by itself."""
    if helpers.job.attempts < 2:
        raise ConnectionError("The payment provider hung up; its next answer will be better.")


@task(max_attempts=3)
def print_invoice(payload: dict[str, Any]) -> None:
    """Cannot ever succeed and says so, which saves the retries. Look at it in the admin."""
    raise PermanentFailure("The printer was given away in 2009.")


@task
def resize_photo(payload: dict[str, Any]) -> None:
    """Slow: occupies one of the worker's slots and no other."""
    time.sleep(payload["seconds"])


@task(queue_name="warehouse")
def move_stock(payload: dict[str, Any]) -> None:
    """In a named queue: one after the other, in order, however many workers there are."""
    time.sleep(0.1)


@task(job_key="search-index", job_key_mode="preserve_run_at")
def refresh_search_index(payload: dict[str, Any]) -> None:
    """Keyed: asked for many times, done once."""


@task
async def fetch_exchange_rates(payload: dict[str, Any]) -> None:
    """Asynchronous: a thousand of these may wait at once without a thread each."""
    await asyncio.sleep(0.3)


@task
def ask_for_review(payload: dict[str, Any]) -> None:
    """Scheduled: added now, to run later."""


@task(cron="* * * * *")
def count_orders(payload: Any) -> None:
    """Recurring: once a minute, on whichever worker is there."""
    Order.objects.count()
