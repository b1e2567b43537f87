"""Orders: the row and its jobs are added in one transaction, so that neither exists without the other."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction

from testproject.shop import tasks
from testproject.shop.models import Order


@transaction.atomic
def place_order(customer: str) -> Order:
    """Create an order, and add the jobs that follow from it."""
    order = Order.objects.create(customer=customer)
    details = {"order": order.pk, "customer": customer}
    tasks.charge_card.add_job(details)
    tasks.book_payment.add_job(details)
    tasks.send_receipt.add_job(details)
    tasks.move_stock.add_job(details)
    tasks.refresh_search_index.add_job(details, run_at=timedelta(seconds=0.5))
    tasks.ask_for_review.add_job(details, run_at=timedelta(seconds=1))
    return order
