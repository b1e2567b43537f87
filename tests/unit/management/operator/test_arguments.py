"""Arguments as an operator types them."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta

import pytest

from django_graphile_worker.management.operator import verb

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("now", timedelta(0)),
        ("+90s", timedelta(seconds=90)),
        ("+1d2h", timedelta(hours=26)),
        ("2026-05-01T12:00Z", NOW),
        ("2026-05-01 14:00+02:00", NOW),
        ("2026-05-01", datetime(2026, 5, 1, tzinfo=UTC)),
    ],
)
def test_run_at__takes(typed: str, meant: object) -> None:
    assert verb.run_at(typed) == meant


@pytest.mark.parametrize("typed", ["", "-5m", "+", "+5", "5m", "tomorrow", "2026-02-30", "2026-05-01T25:00", "12:00"])
def test_run_at__refuses(typed: str) -> None:
    with pytest.raises(ArgumentTypeError, match="expected"):
        verb.run_at(typed)
