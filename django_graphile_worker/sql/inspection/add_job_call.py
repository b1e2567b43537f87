"""The SQL call of ``add_job`` that would add a given job again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django_graphile_worker.job_options import SQL_OPTIONS
from django_graphile_worker.sql.statements import literal, quoted


def add_job_call(identifier: str, payload_text: str, options: Mapping[str, Any], *, schema: str) -> str:
    """Return a statement for psql that adds a job; ``options`` are those that are not left out."""
    arguments = [_literal(identifier), f"payload => {_literal(payload_text)}"]
    given = [option.name for option in SQL_OPTIONS if option.name in options]
    arguments += [f"{name} => {_literal(options[name])}" for name in given]
    body = ",\n  ".join(arguments)
    return f"select {quoted(schema)}.add_job(\n  {body}\n);"


def _literal(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return f"array[{', '.join(map(_literal, value))}]"
    return literal(value.isoformat() if isinstance(value, datetime) else value).strip()
