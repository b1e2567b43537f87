"""What the tasks read and change."""

from __future__ import annotations

from django.db import models


class Customer(models.Model):
    name = models.TextField()
    email = models.TextField()

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    customer = models.ForeignKey(Customer, on_delete=models.CASCADE)
    state = models.TextField(default="new")
    note = models.TextField(default="")
    total = models.DecimalField(max_digits=10, decimal_places=2)

    def __str__(self) -> str:
        return f"order {self.pk}"
