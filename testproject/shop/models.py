from __future__ import annotations

from django.db import models


class Order(models.Model):
    """An order of a customer. Jobs do the work for which the customer does not wait."""

    customer = models.CharField(max_length=100)
    placed_at = models.DateTimeField(auto_now_add=True)
    paid_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"Order {self.pk} of {self.customer}"
