"""The pytest plugin: fixtures for the clock and for immediate mode, and a look for what a test left behind.

pytest loads it in every project in which the package is installed, before Django is set up: it imports the rest of the
package late.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_graphile_worker.testing.ran_jobs import RanJob
    from django_graphile_worker.testing.simulated_time.simulated_clock import Clock


@pytest.fixture
def job_clock() -> Iterator[Clock]:
    """A clock that stands still at the present until the test moves it: ``job_clock.advance(days=3)``."""
    # Late import: Django is set up now.
    from django_graphile_worker.testing import clock

    with clock() as opened:
        yield opened


@pytest.fixture
def immediate_jobs() -> Iterator[list[RanJob]]:
    """Immediate mode: jobs run at the end of the transaction that adds them. The list has what ran."""
    # Late import: Django is set up now.
    from django_graphile_worker.testing import immediate

    with immediate() as ran:
        yield ran


def pytest_collection_finish() -> None:
    """Empty the tables of the worker after each test that commits, whether or not a test imports ``testing``."""
    apps = getattr(sys.modules.get("django.apps"), "apps", None)
    if apps is not None and apps.ready and apps.is_installed("django_graphile_worker"):
        # Late import: only projects that use the package need it.
        from django_graphile_worker.testing.clearing import clear_after_flush

        clear_after_flush()
