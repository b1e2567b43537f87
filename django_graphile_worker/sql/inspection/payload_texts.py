"""Reads payloads of many jobs for lists and files, and never more than a limit of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_graphile_worker.sql.schema import statement

# To cut a payload, PostgreSQL reads it whole. So the payload of a job whose stored value is larger than this number of
# bytes, which is compressed if it is long, is not read at all.
MOST_STORED = 16_384
# How many characters of each payload a list reads.
BEGINNING = 400
# How many characters a payload in a file may have. A longer payload is left out.
LONGEST = 65_536

# pg_column_size() reads only the row: not the value that is stored beside the table.
BEGINNINGS = """/* gw:payload-beginnings */
select job.id, case when pg_column_size(job.payload) <= %(most_stored)s
    then left(job.payload::text, %(longest)s) end
from :SCHEMA._private_jobs as job
where job.id = any (%(ids)s::bigint[])"""


def beginnings(cursor: Any, ids: Sequence[int], *, schema: str) -> dict[int, str | None]:
    """Return the beginning of the payload of each job; None for a payload that is too large to be read for a list."""
    parameters = {"ids": list(ids), "most_stored": MOST_STORED, "longest": BEGINNING}
    cursor.execute(statement(BEGINNINGS, schema), parameters)
    return dict(cursor.fetchall())


def whole_texts(cursor: Any, ids: Sequence[int], *, schema: str) -> dict[int, str | None]:
    """Return the payload of each job as text; None for a payload that is longer than LONGEST."""
    parameters = {"ids": list(ids), "most_stored": LONGEST, "longest": LONGEST + 1}
    cursor.execute(statement(BEGINNINGS, schema), parameters)
    return {job_id: text if text and len(text) <= LONGEST else None for job_id, text in cursor.fetchall()}
