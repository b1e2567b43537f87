"""Canaries: interfaces of Django and psycopg that are not documented, and that the connections of a worker use."""

from __future__ import annotations

from typing import Any

import psycopg
from django.db import connections
from psycopg.conninfo import make_conninfo

from django_graphile_worker.worker.database.connection import DJANGO_ONLY, connection_parameters


def test_django__makes_the_parameters_of_a_connection_without_connecting() -> None:
    """``connections.create_connection()`` and ``DatabaseWrapper.get_connection_params()``."""
    wrapper: Any = connections.create_connection("default")
    parameters = wrapper.get_connection_params()
    assert wrapper.connection is None
    assert set(DJANGO_ONLY) & parameters.keys(), "Django passes parameters of its own, which psycopg does not take"
    # Raises on a name that libpq does not know.
    assert make_conninfo(**connection_parameters("default", part="test"))


def test_django__knows_the_options_of_a_connection_by_its_alias() -> None:
    """``connections.settings``, where the role to assume is."""
    assert connections.settings["default"]["NAME"]
    assert connections.settings["default"].get("OPTIONS") is not None


def test_psycopg__has_the_connection_handle_notifications_of_libpq() -> None:
    """``PGconn.notify_handler``: a statement that bypasses the cursor passes on what came with its answer."""
    link = psycopg.pq.PGconn.connect_start(b"host=/nowhere")
    connection: psycopg.Connection[Any] = psycopg.Connection(link)
    assert callable(link.notify_handler)
    connection.close()
