"""The tests of a project: a suite whose tests run jobs, beside the same suite without jobs.

Each test signs in, saves an order through the admin, reads the list of orders, and books the payment: with a job that
``run_jobs()`` runs, or with a plain call. The target is a suite that takes at most 5 % longer with jobs: compared by
CPU time, of the test process and of its session in the server, as other programs on the machine change the seconds.
"""

from __future__ import annotations

import io
import os
import time
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
    # Milliseconds of CPU of the session in the server: TestCase closes it at the end of the class.
    session_began = session_cpu = 0.0

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        OrderTests.session_began = session_milliseconds()

    @classmethod
    def tearDownClass(cls) -> None:
        OrderTests.session_cpu = session_milliseconds() - OrderTests.session_began
        super().tearDownClass()

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


def session_milliseconds() -> float:
    """Return the CPU time of the session of the tests; zero if its server is on another machine."""
    path = Path(f"/proc/{connection.connection.info.backend_pid}/schedstat")
    return int(path.read_text().split()[0]) / 1e6 if path.exists() else 0.0


@contextmanager
def scratch_database() -> Iterator[None]:
    databases.ensure_running()
    setup_test_environment(debug=False)
    name = settings.DATABASES["default"]["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True)
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
    return {
        "seconds": seconds,
        "milliseconds": 1000 * seconds / count,
        "cpu": 1000 * cpu / count,
        "server_cpu": OrderTests.session_cpu / count,
        "all_cpu": (1000 * cpu + OrderTests.session_cpu) / count,
    }


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
        Metric("server_cpu", "ms of CPU in its session", 2),
        Metric("all_cpu", "ms of CPU in both", 2),
    ]
    table = Table("suite", f"A suite of {count} tests", metrics, list(rows.values()))
    plain, jobs = (rows[name].median("all_cpu") for name in ("without jobs", "with jobs"))
    table.notes.append(f"with jobs, CPU of both: {100 * (jobs / plain - 1):+.1f} %")
    session.add(table)
