"""What a statement reads: counted in shared buffers, which do not depend on the machine or its load."""

from __future__ import annotations

from typing import Any

import psycopg


class MeasuringCursor:
    """A cursor whose statements change nothing: each is explained, run and rolled back."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._rows: list[Any] = []
        # The shared buffers that the last statement touched, including its functions.
        self.buffers = 0

    def execute(self, statement: str, parameters: Any = None) -> None:
        with self._connection.cursor() as cursor:
            # Only the second run is measured: in the first, the session also plans, and marks dead index entries.
            for _ in range(2):
                with self._connection.transaction(force_rollback=True):
                    cursor.execute(f"explain (analyze, buffers, format json) {statement}".encode(), parameters)
                    plan = cursor.fetchall()[0][0][0]["Plan"]
            self.buffers = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            with self._connection.transaction(force_rollback=True):
                cursor.execute(statement.encode(), parameters)
                self._rows = cursor.fetchall()

    def fetchall(self) -> list[Any]:
        return self._rows

    def fetchone(self) -> Any:
        return self._rows[0]
