"""Pause and resume crontab items. A paused item has infinity as its last execution, so no worker fires it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django_graphile_worker.sql.codecs import within_python_years
from django_graphile_worker.sql.cron.crontabs import KnownCrontab, known_crontabs, microseconds_of, moment_of
from django_graphile_worker.sql.schema import statement

PAUSE = """/* gw:cron:pause */
with known as materialized (
    select identifier, last_execution from :SCHEMA._private_known_crontabs
    where identifier = %(identifier)s and last_execution is distinct from 'infinity'
    for update
), kept as (
    insert into :SCHEMA._private_paused_crontabs (identifier, last_execution)
    select identifier, last_execution from known
    on conflict (identifier) do update set last_execution = excluded.last_execution
)
update only :SCHEMA._private_known_crontabs as paused set last_execution = 'infinity'
from known where paused.identifier = known.identifier
returning paused.identifier, :SCHEMA._private_add_event(
    'schedule_paused', 1, paused.identifier, jsonb_build_object('name', paused.identifier))"""

# The item is known from now on: the ticks during the pause are not backfilled.
RESUME = """/* gw:cron:resume */
with kept as (
    delete from only :SCHEMA._private_paused_crontabs where identifier = %(identifier)s returning last_execution
)
update only :SCHEMA._private_known_crontabs as known
set last_execution = (select kept.last_execution from kept), known_since = pg_catalog.clock_timestamp()
where known.identifier = %(identifier)s and known.last_execution = 'infinity'
returning known.identifier, :SCHEMA._private_add_event(
    'schedule_resumed', 1, known.identifier, jsonb_build_object('name', known.identifier))"""

PAUSED = f"""/* gw:cron:paused */
select identifier, {microseconds_of(within_python_years("last_execution"))} from :SCHEMA._private_paused_crontabs"""


def pause(cursor: Any, identifier: str, *, schema: str) -> bool:
    """Pause an item; return False if it is paused already, or has no row in the database."""
    cursor.execute(statement(PAUSE, schema), {"identifier": identifier})
    return cursor.fetchone() is not None


def resume(cursor: Any, identifier: str, *, schema: str) -> bool:
    """Resume an item from now on; return False if it is not paused, or has no row in the database."""
    cursor.execute(statement(RESUME, schema), {"identifier": identifier})
    return cursor.fetchone() is not None


def known_items(cursor: Any, *, schema: str) -> dict[str, KnownCrontab]:
    """Return all known items; ``last_execution`` of a paused item is the value from before the pause, or None."""
    known = known_crontabs(cursor, schema=schema)
    if any(each.is_paused for each in known.values()):
        cursor.execute(statement(PAUSED, schema))
        last_executions = {name: None if last is None else moment_of(last) for name, last in cursor.fetchall()}
        for name, each in known.items():
            if each.is_paused:
                known[name] = replace(each, last_execution=last_executions.get(name))
    return known
