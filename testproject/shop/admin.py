from __future__ import annotations

from django.contrib import admin

from testproject.shop.models import Order

admin.site.register(Order, list_display=["id", "customer", "placed_at", "paid_at"])
