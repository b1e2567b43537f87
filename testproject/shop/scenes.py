"""The events of the demo. Each adds the jobs that follow from it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from testproject.shop import tasks
from testproject.shop.orders import place_order

CUSTOMERS = ("Ada", "Grace", "Edsger", "Barbara", "Tony", "Frances", "Donald", "Radia")

Scene = Callable[[str], object]


def upload_photos(customer: str) -> None:
    for number in range(1, 4):
        tasks.resize_photo.add_job({"photo": f"{customer.lower()}-{number}.jpg", "seconds": 0.4 * number})


def restock_shelves(customer: str) -> None:
    for shelf in "ABCD":
        tasks.move_stock.add_job({"shelf": shelf})


def travel_abroad(customer: str) -> None:
    for currency in ("EUR", "JPY", "GBP"):
        tasks.fetch_exchange_rates.add_job({"currency": currency})


def ask_for_invoice(customer: str) -> None:
    tasks.print_invoice.add_job({"customer": customer})


# In an order that shows each kind of job early.
SCENES: tuple[Scene, ...] = (
    place_order,
    upload_photos,
    restock_shelves,
    travel_abroad,
    place_order,
    ask_for_invoice,
)


def endlessly() -> Iterator[tuple[Scene, str]]:
    """Return the scenes again and again, each with another customer."""
    return zip(itertools.cycle(SCENES), itertools.cycle(CUSTOMERS), strict=False)


def once() -> Iterator[tuple[Scene, str]]:
    """Return every scene once, for `demo --once`."""
    return zip(SCENES, itertools.cycle(CUSTOMERS), strict=False)


def title(scene: Scene, customer: str) -> str:
    """Return a title for people: 'Ada: place order'."""
    return f"{customer}: {scene.__name__.replace('_', ' ')}"
