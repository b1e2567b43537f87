"""Statements that call a public function of the schema, with its notification or without."""

from __future__ import annotations

from datetime import datetime, timedelta

from django_graphile_worker.sql.result_keeping import CALLED, IS_RECORDED, RECORD_OPERATOR

# Seconds rather than an interval: a day is 24 hours here, even if the session's time zone has summer time.
MOMENT = "coalesce(%s::timestamptz, now() + %s::float8 * interval '1 second')"


def moment(run_at: datetime | timedelta | None) -> tuple[datetime | None, float | None]:
    """Return the two parameters of MOMENT: the time itself, or seconds from the database's now."""
    if isinstance(run_at, timedelta):
        return None, run_at.total_seconds()
    return run_at, None


_SILENCE = """silence as materialized (
            select coalesce(current_setting('graphile_worker.notify', true), '') as before,
                   set_config('graphile_worker.notify', 'off', true) as now
        )"""
_END_OF_SILENCE = "set_config('graphile_worker.notify', silence.before, true)"


def call_statements(tag: str, columns: str, function: str, *, first: str, rest: str = "") -> dict[bool, str]:
    """Return two statements that call the function: by True with the notification of workers, by False without.

    The notification is off for this statement only: the setting is changed before the function runs, because the first
    argument of the function depends on it, and restored with the rows that the function returns.
    """
    return {
        True: f"/* gw:{tag} */ select {columns} from :SCHEMA.{function}({first}{rest}) as job",
        False: f"""/* gw:{tag} */
        with {_SILENCE}
        select {columns}, {_END_OF_SILENCE}
        from silence left join lateral
            {_silenced(function, first, rest)} as job on true""",
    }


def recorded_call_statements(tag: str, columns: str, function: str, *, first: str, rest: str = "") -> dict[bool, str]:
    """Return the statements of ``call_statements``, which also record that the function ended the jobs it returns."""
    job = f"(select ({CALLED}.job).* from {CALLED}) as job"
    return {
        True: f"""/* gw:{tag} */
        with {CALLED} as materialized (select job from :SCHEMA.{function}({first}{rest}) as job), {RECORD_OPERATOR}
        select {columns} from {job} where {IS_RECORDED}""",
        False: f"""/* gw:{tag} */
        with {_SILENCE}, {CALLED} as materialized (
            select job from silence cross join lateral {_silenced(function, first, rest)} as job
        ), {RECORD_OPERATOR}
        select {columns}, {_END_OF_SILENCE} from silence left join {job} on true where {IS_RECORDED}""",
    }


def _silenced(function: str, first: str, rest: str) -> str:
    return f":SCHEMA.{function}(case silence.now when 'off' then {first} end{rest})"
