"""Canary for the private interface of Django's connections that the package uses; tests/unit has the others."""

from __future__ import annotations

import pytest
from django.db import connection, transaction


@pytest.mark.django_db(transaction=True)
def test_django__keeps_open_atomic_blocks_and_savepoints_in_lists() -> None:
    """``atomic_blocks`` and ``savepoint_ids`` have one entry for each nested block, and are empty outside."""
    assert (connection.atomic_blocks, connection.savepoint_ids) == ([], [])
    with transaction.atomic():
        assert (len(connection.atomic_blocks), len(connection.savepoint_ids)) == (1, 0)
        with transaction.atomic():
            assert (len(connection.atomic_blocks), len(connection.savepoint_ids)) == (2, 1)
    assert (connection.atomic_blocks, connection.savepoint_ids) == ([], [])
