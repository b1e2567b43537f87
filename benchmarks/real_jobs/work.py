"""The work of the tasks: two queries and an update, an HTTP call (sync and async), and 20 ms of computing.

Each function takes the number of the job and reports its start and its end, which benchmarks/draining.py reads.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
import urllib.request
from collections.abc import Callable
from functools import cache
from typing import Any
from urllib.parse import urlsplit


def pay_order(number: int) -> None:
    """Read an order and its customer, and update the order."""
    # Late import: the models can be imported only after Django's setup.
    from benchmarks.real_jobs.models import Customer, Order

    _began()
    order = Order.objects.get(pk=number)
    customer = Customer.objects.get(pk=order.customer_id)
    Order.objects.filter(pk=order.pk).update(state="paid", note=f"paid by {customer.name}")
    _ended()


def call_service(number: int) -> None:
    _began()
    with urllib.request.urlopen(os.environ["SERVICE_URL"]) as response:
        response.read()
    _ended()


async def call_service_async(number: int) -> None:
    _began()
    url = urlsplit(os.environ["SERVICE_URL"])
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(f"GET / HTTP/1.1\r\nHost: {url.hostname}\r\nConnection: close\r\n\r\n".encode())
    await reader.read()
    writer.close()
    _ended()


def compute(number: int) -> None:
    _began()
    burn(int(os.environ["ITERATIONS"]))
    _ended()


def burn(iterations: int) -> bytes:
    """Compute in Python, with the lock of the interpreter held."""
    digest = b""
    for _ in range(iterations):
        digest = hashlib.sha256(digest).digest()
    return digest


WORK: dict[str, Callable[[int], Any]] = {
    "orm": pay_order,
    "http": call_service,
    "http_async": call_service_async,
    "cpu": compute,
}


@cache
def _file(process: int) -> int:
    """Return the file of the reports; the argument makes a forked process open it again."""
    file = os.open(os.environ["REPORT"], os.O_WRONLY | os.O_APPEND)
    os.write(file, f"first {time.monotonic()}\n".encode())
    return file


def _began() -> None:
    _file(os.getpid())


def _ended() -> None:
    os.write(_file(os.getpid()), b"1\n")
