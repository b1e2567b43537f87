"""Canaries for the private interfaces of Django's connections that the package uses; tests/unit has the others."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, connections, transaction


@pytest.mark.django_db(transaction=True)
def test_django__keeps_open_atomic_blocks_and_savepoints_in_lists() -> None:
    """``atomic_blocks`` and ``savepoint_ids`` have one entry for each nested block, and are empty outside."""
    assert (connection.atomic_blocks, connection.savepoint_ids) == ([], [])
    with transaction.atomic():
        assert (len(connection.atomic_blocks), len(connection.savepoint_ids)) == (1, 0)
        with transaction.atomic():
            assert (len(connection.atomic_blocks), len(connection.savepoint_ids)) == (2, 1)
    assert (connection.atomic_blocks, connection.savepoint_ids) == ([], [])


@pytest.mark.django_db(transaction=True)
def test_django__begins_and_ends_transactions_with_the_methods_that_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``atomic()`` calls ``_set_autocommit``, ``_commit`` and ``_rollback`` of the connection, in this order."""
    calls: list[str] = []

    def recorded(name: str) -> Any:
        original = getattr(connection, name)

        def call(*arguments: Any) -> None:
            calls.append(f"{name}{arguments}")
            original(*arguments)

        return call

    connection.ensure_connection()
    for name in ("_set_autocommit", "_commit", "_rollback"):
        monkeypatch.setattr(connection, name, recorded(name), raising=True)
    with transaction.atomic():
        assert connection.in_atomic_block
        assert not connection.autocommit
    with pytest.raises(ValueError), transaction.atomic():
        raise ValueError
    assert calls == [
        *("_set_autocommit(False,)", "_commit()", "_set_autocommit(True,)"),
        *("_set_autocommit(False,)", "_rollback()", "_set_autocommit(True,)"),
    ]
    for name in ("commit_on_exit", "needs_rollback", "rollback_exc", "closed_in_transaction", "run_on_commit"):
        assert name in vars(connections["default"])


@pytest.mark.django_db
def test_django__marks_the_blocks_of_a_test_case() -> None:
    """The blocks of a test have the attribute ``_from_testcase``; others do not."""
    with transaction.atomic():
        marks = [getattr(block, "_from_testcase", False) for block in connection.atomic_blocks]
    assert (marks[0], marks[-1]) == (True, False)
