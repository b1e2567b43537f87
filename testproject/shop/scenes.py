"""What happens in the demo: small scenes, each of which adds the jobs it takes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

from testproject.shop import tasks
from testproject.shop.orders import place_order

CUSTOMERS = ("Ada", "Grace", "Edsger", "Barbara", "Tony", "Frances", "Donald", "Radia")

Scene = Callable[[str], object]


def _photo_album(customer: str) -> None:
    for number in range(1, 4):
        tasks.resize_photo.add_job({"photo": f"{customer.lower()}-{number}.jpg", "seconds": 0.4 * number})


def _restock(customer: str) -> None:
    for shelf in "ABCD":
        tasks.move_stock.add_job({"shelf": shelf})


def _exchange_rates(customer: str) -> None:
    for currency in ("EUR", "JPY", "GBP"):
        tasks.fetch_exchange_rates.add_job({"currency": currency})


def _invoice(customer: str) -> None:
    tasks.print_invoice.add_job({"customer": customer})


# In the order in which they make sense to somebody who watches.
SCENES: tuple[Scene, ...] = (place_order, _photo_album, _restock, _exchange_rates, place_order, _invoice)


def endlessly() -> Iterator[Callable[[], object]]:
    """Scene after scene, each with another customer."""
    for scene, customer in zip(itertools.cycle(SCENES), itertools.cycle(CUSTOMERS), strict=False):
        yield partial(scene, customer)


def play_all() -> None:
    """Every scene once: the fixed set of `demo --once`."""
    for scene, customer in zip(SCENES, itertools.cycle(CUSTOMERS), strict=False):
        scene(customer)
