"""What happens in the demo: small scenes, each of which adds the jobs it takes."""

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


# In the order in which they make sense to somebody who watches.
SCENES: tuple[Scene, ...] = (
    place_order,
    upload_photos,
    restock_shelves,
    travel_abroad,
    place_order,
    ask_for_invoice,
)


def endlessly() -> Iterator[tuple[Scene, str]]:
    """Scene after scene, each with another customer."""
    return zip(itertools.cycle(SCENES), itertools.cycle(CUSTOMERS), strict=False)


def once() -> Iterator[tuple[Scene, str]]:
    """Every scene once: the fixed set of `demo --once`."""
    return zip(SCENES, itertools.cycle(CUSTOMERS), strict=False)


def title(scene: Scene, customer: str) -> str:
    """What a person would say: 'Ada: place order'."""
    return f"{customer}: {scene.__name__.replace('_', ' ')}"
