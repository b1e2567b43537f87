from __future__ import annotations

from django.db import models


class Order(models.Model):
    """What a customer bought; jobs do everything that need not be done while the customer waits."""

    customer = models.CharField(max_length=100)
    placed_at = models.DateTimeField(auto_now_add=True)
    paid_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"Order {self.pk} of {self.customer}"
