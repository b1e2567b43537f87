"""The tests of a project: a suite whose tests run jobs, beside the same suite without jobs.

Each test signs in, saves an order through the admin, reads the list of orders, and books the payment: with a job that
``run_jobs()`` runs, or with a plain call. The target is a suite that takes at most 5 % longer with jobs.
"""

from __future__ import annotations

import io
import os
import time
import unittest
from collections.abc import Iterator
from contextlib import contextmanager

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
os.environ["DEBUG"] = "0"
django.setup()

from django.conf import settings  # noqa: E402
from django.contrib.auth.models import User  # noqa: E402
from django.db import connection  # noqa: E402
from django.test import TestCase  # noqa: E402
from django.test.utils import setup_test_environment, teardown_test_environment  # noqa: E402

from benchmarks.results import Metric, Table  # noqa: E402
from benchmarks.session import Figures, Session  # noqa: E402
from django_graphile_worker.testing import run_jobs  # noqa: E402
from testproject import databases  # noqa: E402
from testproject.shop.models import Order  # noqa: E402
from testproject.shop.tasks import book_payment  # noqa: E402

TESTS = 500


class OrderTests(TestCase):
    """The two tests."""

    user: User

    @classmethod
    def setUpTestData(cls) -> None:
        cls.user = User.objects.create_superuser("ann")

    def place_order(self) -> Order:
        self.client.force_login(self.user)
        answer = self.client.post("/admin/shop/order/add/", {"customer": "Bob"}, follow=True)
        assert "Bob" in answer.content.decode()
        return Order.objects.get()

    def with_a_job(self) -> None:
        order = self.place_order()
        book_payment.add_job({"order": order.pk})
        assert len(run_jobs()) == 1
        assert Order.objects.get().paid_at

    def without_jobs(self) -> None:
        order = self.place_order()
        book_payment({"order": order.pk})
        assert Order.objects.get().paid_at


@contextmanager
def scratch_database() -> Iterator[None]:
    databases.ensure_running()
    setup_test_environment(debug=False)
    name = settings.DATABASES["default"]["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        yield
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)
        teardown_test_environment()


def run_suite(method: str, count: int) -> Figures:
    """Run a test many times, and return how long all of it took."""
    suite = unittest.TestSuite(OrderTests(method) for _ in range(count))
    began, cpu_began = time.perf_counter(), time.process_time()
    result = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    assert result.wasSuccessful(), [*result.errors, *result.failures]
    return {"seconds": seconds, "milliseconds": 1000 * seconds / count, "cpu": 1000 * cpu / count}


def measure(session: Session) -> None:
    count = session.amount(TESTS, 50)
    with scratch_database():
        rows = session.interleave(
            f"{count} tests",
            {
                "without jobs": lambda: run_suite("without_jobs", count),
                "with jobs": lambda: run_suite("with_a_job", count),
            },
            warm_up=True,
        )
    metrics = [
        Metric("seconds", "s for all tests", 2),
        Metric("milliseconds", "ms for each test", 2),
        Metric("cpu", "ms of CPU in the test process", 2),
    ]
    table = Table("suite", f"A suite of {count} tests", metrics, list(rows.values()))
    plain, jobs = (rows[name].median("seconds") for name in ("without jobs", "with jobs"))
    table.notes.append(f"with jobs: {100 * (jobs / plain - 1):+.1f} %")
    session.add(table)
