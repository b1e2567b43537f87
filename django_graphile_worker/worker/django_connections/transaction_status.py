"""The transaction state of a connection, which libpq keeps: reading it sends nothing to the server."""

from __future__ import annotations

from typing import Any

# The values of psycopg.pq.TransactionStatus, as plain numbers: members of an enum are slower to compare.
IDLE, ACTIVE, IN_TRANSACTION, IN_FAILED_TRANSACTION, UNKNOWN = range(5)


def transaction_status(wrapper: Any) -> int:
    """Return the state of a Django connection; idle if it is not open, or uses another driver."""
    pgconn = getattr(wrapper.connection, "pgconn", None)
    return IDLE if pgconn is None else int(pgconn.transaction_status)
