from __future__ import annotations

import pytest

from django_graphile_worker.versions import is_older


@pytest.mark.parametrize(
    ("version", "than", "expected"),
    [
        ("1.9.3", "1.10", True),
        ("1.10.0", "1.10", False),
        # A preview has the tables of its release.
        ("1.10.dev3+g12ab", "1.10.0", False),
        ("1.10rc1", "1.10.1", True),
        # Other programs may write anything into the register.
        ("", "1.10", False),
        ("unknown", "1.10", False),
        ("9" * 5000, "1.10", False),
    ],
)
def test_is_older(version: str, than: str, expected: bool) -> None:
    assert is_older(version, than) is expected
