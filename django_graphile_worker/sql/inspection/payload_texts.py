"""Reads payloads of many jobs for lists and files, and never more than a limit of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_graphile_worker.sql.statements import statement

# To cut a payload, PostgreSQL reads it whole. So a payload whose stored value has more bytes than this is not read at
# all. A compressed value may be ninety times as long as what is stored.
MOST_STORED = 16_384
MOST_COMPRESSED = 3_000
# How many characters of each payload a list reads.
BEGINNING = 400
# How many characters a payload in a file may have. A longer payload is left out.
LONGEST = 65_536
# How many payloads of a file one statement reads.
STEP = 100

# pg_column_size() and pg_column_compression() read only the row: not the value that is stored beside the table.
BEGINNINGS = """/* gw:payload-beginnings */
select job.id, case when pg_column_size(job.payload) <= case
        when pg_column_compression(job.payload) is null then %(most_stored)s::int else %(most_compressed)s::int end
    then left(job.payload::text, %(longest)s::int) end
from :SCHEMA._private_jobs as job
where job.id = any (%(ids)s::bigint[])"""


def beginnings(cursor: Any, ids: Sequence[int], *, schema: str) -> dict[int, str | None]:
    """Return the beginning of the payload of each job; None for a payload that is too large to be read for a list."""
    return _read(cursor, ids, schema, BEGINNING, most_stored=MOST_STORED, most_compressed=MOST_COMPRESSED)


def whole_texts(cursor: Any, ids: Sequence[int], *, schema: str) -> dict[int, str | None]:
    """Return the payload of each job as text; None for a payload that is longer than LONGEST."""
    found: dict[int, str | None] = {}
    limits = {"most_stored": 4 * LONGEST, "most_compressed": LONGEST}
    for start in range(0, len(ids), STEP):
        found |= _read(cursor, ids[start : start + STEP], schema, LONGEST + 1, **limits)
    return {job_id: text if text and len(text) <= LONGEST else None for job_id, text in found.items()}


def _read(cursor: Any, ids: Sequence[int], schema: str, longest: int, **limits: int) -> dict[int, str | None]:
    cursor.execute(statement(BEGINNINGS, schema), {"ids": list(ids), "longest": longest, **limits})
    return dict(cursor.fetchall())
