"""The SQL functions of the worker schema, called as any client would call them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

Row = dict[str, Any]

CASTS = {
    "identifier": "text",
    "payload": "json",
    "queue_name": "text",
    "run_at": "timestamptz",
    "max_attempts": "integer",
    "job_key": "text",
    "priority": "integer",
    "flags": "text[]",
    "job_key_mode": "text",
    "job_ids": "bigint[]",
    "worker_ids": "text[]",
    "error_message": "text",
    "attempts": "integer",
}
SPEC = ("identifier", "payload", "queue_name", "run_at", "max_attempts", "job_key", "priority", "flags")


@dataclass(frozen=True)
class WorkerSql:
    """A connection and a schema."""

    connection: psycopg.Connection[Any]
    schema: str
    # psycopg can read times as text only in the ISO style.
    is_binary: bool = False

    def query(self, text: str, *parameters: Any) -> list[Row]:
        """Run a statement in which {schema} is the schema, and return its rows as dicts."""
        statement = text.replace("{schema}", f'"{self.schema}"').encode()
        with self.connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(statement, parameters or None, binary=self.is_binary)
            return cursor.fetchall() if cursor.description else []

    def value(self, text: str, *parameters: Any) -> Any:
        """Return the first column of the only row."""
        (row,) = self.query(text, *parameters)
        return next(iter(row.values()))

    def notified_counts(self) -> list[int]:
        """Return the number of jobs that each notification since the last call tells of."""
        self.query("select 1")
        return [json.loads(notify.payload)["count"] for notify in self.connection.notifies(timeout=0)]

    def call(self, function: str, **arguments: Any) -> list[Row]:
        """Call a function with named arguments."""
        named = ", ".join(f"{name} := %s::{CASTS[name]}" for name in arguments)
        return self.query(f"select * from {{schema}}.{function}({named})", *map(adapted, arguments.items()))

    def add_job(self, identifier: str | None = "task", /, **options: Any) -> Row:
        (row,) = self.call("add_job", identifier=identifier, **options)
        return row

    def add_jobs(self, *specs: Row, preserve_run_at: bool | None = None) -> list[Row]:
        rows = ", ".join("(%s, %s::json, %s, %s::timestamptz, %s, %s, %s, %s::text[])" for _ in specs)
        values = [adapted((name, {"identifier": "task", **spec}.get(name))) for spec in specs for name in SPEC]
        flag = "" if preserve_run_at is None else f", {preserve_run_at}"
        array = f"array[{rows}]::{{schema}}.job_spec[]"
        return self.query(f"select * from {{schema}}.add_jobs({array}{flag})", *values)

    def jobs(self) -> list[Row]:
        """Return all jobs, oldest first."""
        return self.query("select * from {schema}._private_jobs order by id")

    def job(self, job_id: int) -> Row:
        (row,) = self.query("select * from {schema}._private_jobs where id = %s", job_id)
        return row

    def lock(self, job_id: int, *, by: str = "worker", ago: str = "0 seconds") -> Row:
        """Claim a job, as a worker does."""
        (row,) = self.query(
            "update {schema}._private_jobs set locked_at = now() - %s::interval, locked_by = %s,"
            " attempts = attempts + 1 where id = %s returning *",
            ago,
            by,
            job_id,
        )
        return row


def adapted(item: tuple[str, Any]) -> Any:
    """Convert a payload to JSON text unless it is a string, and leave other values as they are."""
    name, value = item
    return json.dumps(value) if name == "payload" and value is not None and not isinstance(value, str) else value
