"""The canary for the private interface of psycopg that the worker's connections use."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from psycopg.adapt import Transformer

from tests.conftest import RawConnection

pytestmark = pytest.mark.django_db


def test_psycopg__loads_the_rows_of_a_result(raw_connection: Callable[..., RawConnection]) -> None:
    """``set_pgresult()`` and ``load_rows()``, with which a cursor of the driver reads its rows."""
    connection = raw_connection()
    result = connection.pgconn.exec_params(b"select 1::int, 'a'::text", None, result_format=1)
    reader = Transformer(connection)
    reader.set_pgresult(result)
    assert reader.load_rows(0, result.ntuples, tuple) == [(1, "a")]
