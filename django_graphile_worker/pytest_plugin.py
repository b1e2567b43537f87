"""The pytest plugin: fixtures for the clock and for immediate mode.

pytest loads it in every environment in which the package is installed, also for projects that do not use Django, so it
imports ``testing`` late.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_graphile_worker.testing.in_process_worker import RanJob
    from django_graphile_worker.testing.simulated_clock import Clock


@pytest.fixture
def job_clock() -> Iterator[Clock]:
    """A clock that stands still at the present until the test moves it: ``job_clock.advance(days=3)``."""
    from django_graphile_worker.testing import clock

    with clock() as opened:
        yield opened


@pytest.fixture
def immediate_jobs() -> Iterator[list[RanJob]]:
    """Immediate mode: jobs run at the end of the transaction that adds them. The list has what ran."""
    from django_graphile_worker.testing import immediate

    with immediate() as ran:
        yield ran
