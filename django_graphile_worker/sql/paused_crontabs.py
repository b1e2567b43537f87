"""Recurring tasks that are paused: the item's row says that it has run for ever, so nobody fires it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django_graphile_worker.sql.codecs import within_python_years
from django_graphile_worker.sql.crontabs import KnownCrontab, known_crontabs, microseconds_of, moment_of
from django_graphile_worker.sql.schema import statement

PAUSE = """/* gw:cron:pause */
with known as materialized (
    select identifier, last_execution from :SCHEMA._private_known_crontabs
    where identifier = %(identifier)s and last_execution is distinct from 'infinity'
    for update
), kept as (
    insert into :SCHEMA._private_paused_crontabs (identifier, last_execution)
    select identifier, last_execution from known
    on conflict (identifier) do update
    set last_execution = excluded.last_execution, paused_at = excluded.paused_at
)
update only :SCHEMA._private_known_crontabs as paused set last_execution = 'infinity'
from known where paused.identifier = known.identifier
returning paused.identifier"""

# Known from now on: what was missed during the pause is not made up.
RESUME = """/* gw:cron:resume */
with kept as (
    delete from only :SCHEMA._private_paused_crontabs where identifier = %(identifier)s returning last_execution
)
update only :SCHEMA._private_known_crontabs as known
set last_execution = (select kept.last_execution from kept), known_since = pg_catalog.clock_timestamp()
where known.identifier = %(identifier)s and known.last_execution = 'infinity'
returning known.identifier"""

PAUSED = f"""/* gw:cron:paused */
select identifier, {microseconds_of(within_python_years("last_execution"))} from :SCHEMA._private_paused_crontabs"""


def pause(cursor: Any, identifier: str, *, schema: str) -> bool:
    """Pause an item; False when it is paused already, or unknown to the database."""
    cursor.execute(statement(PAUSE, schema), {"identifier": identifier})
    return cursor.fetchone() is not None


def resume(cursor: Any, identifier: str, *, schema: str) -> bool:
    """Have an item fired again from now on; False when it is not paused, or unknown to the database."""
    cursor.execute(statement(RESUME, schema), {"identifier": identifier})
    return cursor.fetchone() is not None


def known_items(cursor: Any, *, schema: str) -> dict[str, KnownCrontab]:
    """All items that the database knows; of those that are paused, when they last ran, if that is known."""
    known = known_crontabs(cursor, schema=schema)
    if any(each.is_paused for each in known.values()):
        cursor.execute(statement(PAUSED, schema))
        last_runs = {name: None if last is None else moment_of(last) for name, last in cursor.fetchall()}
        for name, each in known.items():
            if each.is_paused:
                known[name] = replace(each, last_execution=last_runs.get(name))
    return known
