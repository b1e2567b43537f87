from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from testproject.shop.models import Order
from testproject.shop.orders import place_order


def index(request: HttpRequest) -> HttpResponse:
    return render(request, "shop/index.html", {"orders": Order.objects.all()[:20]})


@require_POST
def order(request: HttpRequest) -> HttpResponse:
    place_order(request.POST.get("customer", "").strip()[:100] or "Anonymous")
    return redirect("index")
