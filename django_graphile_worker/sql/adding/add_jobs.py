"""Add many jobs with few statements: payloads alone as columns, jobs with options or keys as one JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from django_graphile_worker.job_options import JobKeyMode
from django_graphile_worker.jobs import Job, JobSpec
from django_graphile_worker.sql.adding.add_job import WIDTH, Added, add_job, added_columns, added_job
from django_graphile_worker.sql.adding.specs import Entry, element, new_job, not_inserted
from django_graphile_worker.sql.adding.unique_jobs import add_unique_jobs
from django_graphile_worker.sql.codecs import text_array
from django_graphile_worker.sql.function_calls import call_statements
from django_graphile_worker.sql.parked_jobs import with_true_times
from django_graphile_worker.sql.schema import statement

if TYPE_CHECKING:
    from django_graphile_worker.sql.cursor import Cursor, Row

# How many jobs without a key one statement adds. More are not faster, and need more memory.
MAX_UNKEYED = 1_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Neighbouring specs and their payloads that one statement can add; ``mode`` is None when no spec has a key."""

    mode: JobKeyMode | None
    specs: list[JobSpec]
    payloads: list[str]

    @property
    def is_one_statement(self) -> bool:
        """Return whether one statement adds the jobs."""
        return self.mode is not JobKeyMode.UNSAFE_DEDUPE or len(self.specs) == 1

    @property
    def entries(self) -> list[Entry]:
        """Return the specs, each with its payload."""
        return list(zip(self.specs, self.payloads, strict=True))


def batches(entries: Iterable[Entry], *, max_keyed: int, max_characters: int) -> Iterator[Batch]:
    """Cut a stream of entries into batches, where the job key mode changes or a statement would become too large.

    Only neighbours share a batch: jobs must get their ids in the order of the specs, and of several specs with the same
    key the last must win.
    """
    specs: list[JobSpec] = []
    payloads: list[str] = []
    present: JobKeyMode | None = None
    size = 0
    for spec, payload in entries:
        mode = _mode(spec)
        if specs and not _can_join(mode, present):
            yield Batch(present, specs, payloads)
            specs, payloads, present, size = [], [], None, 0
        present = mode if present is None else present
        specs.append(spec)
        payloads.append(payload)
        size += len(payload)
        if size >= max_characters or len(specs) >= (MAX_UNKEYED if present is None else max_keyed):
            yield Batch(present, specs, payloads)
            specs, payloads, present, size = [], [], None, 0
    if specs:
        yield Batch(present, specs, payloads)


def _mode(spec: JobSpec) -> JobKeyMode | None:
    if spec.unique is not None:
        # Unique jobs are not added with others, either.
        return JobKeyMode.UNSAFE_DEDUPE
    return None if spec.job_key is None else spec.job_key_mode or JobKeyMode.REPLACE


def _can_join(mode: JobKeyMode | None, present: JobKeyMode | None) -> bool:
    if mode is None:
        return present is not JobKeyMode.UNSAFE_DEDUPE
    return mode == present or (present is None and mode is not JobKeyMode.UNSAFE_DEDUPE)


# A payload is a line: the encoder escapes line breaks.
_PLAIN_SPECS = r"""array(
    select (spec.identifier, spec.payload::json, null, null, null, null, null, null):::SCHEMA.job_spec
    from rows from (unnest(%s::pg_catalog.text[]), string_to_table(%s::pg_catalog.text, E'\n'))
        with ordinality as spec(identifier, payload, place)
    order by spec.place
)"""
_SPECS = """(
    select array_agg(
        (spec.i, spec.p, spec.q, coalesce(spec.t, now() + spec.d * interval '1 second'),
         spec.m, spec.k, spec.r, spec.f):::SCHEMA.job_spec
        order by spec.place)
    from rows from (json_to_recordset(%s::json)
        as (i pg_catalog.text, p pg_catalog.json, q pg_catalog.text, t pg_catalog.timestamptz, d pg_catalog.float8,
            m int, k pg_catalog.text, r int, f pg_catalog.text[]))
        with ordinality as spec(i, p, q, t, d, m, k, r, f, place)
)"""

_NOW_ONCE = "case when row_number() over () = 1 then now() end"

ADD_PLAIN_JOBS = call_statements("add_jobs", f"job.id, {_NOW_ONCE}", "add_jobs", first=_PLAIN_SPECS, rest=", false")
ADD_PLAIN_JOBS_BLINDLY = call_statements("add_jobs", "job.id", "add_jobs", first=_PLAIN_SPECS, rest=", false")
ADD_JOBS = call_statements("add_jobs", added_columns(_NOW_ONCE), "add_jobs", first=_SPECS, rest=", %s::boolean")
ADD_JOBS_BLINDLY = call_statements("add_jobs", "job.id", "add_jobs", first=_SPECS, rest=", %s::boolean")


def add_batch(cursor: Cursor, batch: Batch, *, schema: str, notify: bool = True) -> list[Job]:
    """Add the jobs of a batch, and return the job of each spec, in their order."""
    if batch.mode is JobKeyMode.UNSAFE_DEDUPE:
        return _add_one_by_one(cursor, batch, schema=schema, notify=notify)
    if _is_plain(batch):
        cursor.execute(statement(ADD_PLAIN_JOBS[notify], schema), _columns(batch))
        rows = _rows(cursor, batch, schema)
        now = rows[0][1]
        return [
            new_job(spec, payload, row[0], now, now)
            for spec, payload, row in zip(batch.specs, batch.payloads, rows, strict=True)
        ]
    cursor.execute(statement(ADD_JOBS[notify], schema), _document(batch))
    jobs = _in_order(batch, _rows(cursor, batch, schema))
    # A job that waits for a limit, and whose time was preserved, has its true time elsewhere.
    return with_true_times(cursor, jobs, schema=schema) if batch.mode is JobKeyMode.PRESERVE_RUN_AT else jobs


def add_batch_blindly(cursor: Cursor, batch: Batch, *, schema: str, notify: bool = True) -> None:
    """Add the jobs of a batch, and read nothing back."""
    if batch.mode is JobKeyMode.UNSAFE_DEDUPE:
        _add_one_by_one(cursor, batch, schema=schema, notify=notify)
    elif _is_plain(batch):
        cursor.execute(statement(ADD_PLAIN_JOBS_BLINDLY[notify], schema), _columns(batch))
    else:
        cursor.execute(statement(ADD_JOBS_BLINDLY[notify], schema), _document(batch))


def _is_plain(batch: Batch) -> bool:
    """Return whether all specs are a task and a payload, without an option."""
    return batch.mode is None and all(map(_has_no_option, batch.specs))


def _has_no_option(spec: JobSpec) -> bool:
    return (
        spec.queue_name is None
        and spec.run_at is None
        and spec.max_attempts is None
        and spec.priority is None
        and not spec.flags
    )


def _columns(batch: Batch) -> tuple[str, str]:
    return text_array(spec.identifier for spec in batch.specs), "\n".join(batch.payloads)


def _document(batch: Batch) -> tuple[str, bool]:
    document = "[" + ",".join(map(element, batch.specs, batch.payloads)) + "]"
    return document, batch.mode is JobKeyMode.PRESERVE_RUN_AT


def _rows(cursor: Cursor, batch: Batch, schema: str) -> list[Row]:
    rows: list[Row] = cursor.fetchall()
    if len(rows) != len(batch.specs) or rows[0][0] is None:
        raise not_inserted(schema)
    return rows


def _add_one_by_one(cursor: Cursor, batch: Batch, *, schema: str, notify: bool) -> list[Job]:
    """Add the jobs of a batch whose job key mode only ``add_job`` has, and unique jobs."""
    jobs: list[Job] = []
    for is_unique, some in groupby(batch.entries, key=lambda entry: entry[0].unique is not None):
        if is_unique:
            jobs += add_unique_jobs(cursor, list(some), schema=schema, notify=notify)
        else:
            jobs += [add_job(cursor, *entry, schema=schema, notify=notify) for entry in some]
    return jobs


def _in_order(batch: Batch, rows: Sequence[Row]) -> list[Job]:
    """Return the job of each entry. Entries that share a key share a row, which holds the values of the last entry."""
    added = [Added._make(row[:WIDTH]) for row in rows]
    now = added[0].now
    last_entry = {entry[0].job_key: entry for entry in batch.entries}
    return [
        added_job(*(entry if row.key is None else last_entry[row.key]), row, now)
        for entry, row in zip(batch.entries, added, strict=True)
    ]
