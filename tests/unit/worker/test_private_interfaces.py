"""Interfaces of Django and psycopg that are not documented, and that the watch over connections relies on."""

from __future__ import annotations

import math
from typing import Any

import pytest
from django.db.backends.postgresql.base import DatabaseWrapper


class OpenWrapper(DatabaseWrapper):
    """A wrapper that believes that it is open, and notes what becomes of it."""

    def __init__(self) -> None:
        super().__init__({"AUTOCOMMIT": False, "CONN_HEALTH_CHECKS": True, "OPTIONS": {}, "TIME_ZONE": None}, "canary")
        self.connection: Any = object()
        self.health_check_done = True
        self.calls: list[str] = []

    def ensure_connection(self) -> None:
        """Do nothing: pytest-django refuses the original where no test asked for a database."""

    def close(self) -> None:
        self.calls.append("close")

    def is_usable(self) -> bool:
        self.calls.append("is_usable")
        return True


def test_database_wrapper__has_the_attributes_that_are_read_and_set() -> None:
    wrapper = DatabaseWrapper({"OPTIONS": {}}, "canary")
    expected = {
        "atomic_blocks": [],
        "autocommit": False,
        "close_at": None,
        "closed_in_transaction": False,
        "connection": None,
        "errors_occurred": False,
        "execute_wrappers": [],
        "force_debug_cursor": False,
        "health_check_done": False,
        "in_atomic_block": False,
        "needs_rollback": False,
        "savepoint_ids": [],
    }
    found = {name: vars(wrapper)[name] for name in expected if name in vars(wrapper)}
    assert found == expected, (
        "attributes of Django's DatabaseWrapper have changed: adapt WatchedConnection, or what a job leaves on its "
        "connections reaches the next job."
    )
    assert list(wrapper.queries_log) == []
    assert wrapper.pool is None


@pytest.mark.parametrize(
    ("attributes", "calls", "is_checked"),
    [
        ({"close_at": None}, [], False),
        ({"close_at": math.inf}, [], False),
        ({"close_at": 0.0}, ["close"], False),
        ({"errors_occurred": True}, ["is_usable"], True),
    ],
)
def test_close_if_unusable_or_obsolete__does_more_than_reset_the_health_check_in_two_cases_only(
    attributes: dict[str, Any], calls: list[str], is_checked: bool
) -> None:
    wrapper = OpenWrapper()
    vars(wrapper).update(attributes)
    wrapper.close_if_unusable_or_obsolete()
    assert (wrapper.calls, wrapper.health_check_done) == (calls, is_checked), (
        "DatabaseWrapper.close_if_unusable_or_obsolete() decides by something else than errors_occurred and close_at: "
        "adapt WatchedConnection._close_if_unusable_or_obsolete()."
    )
