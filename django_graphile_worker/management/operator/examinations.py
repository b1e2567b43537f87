"""The examinations of ``doctor``: each looks at one subject, and returns what it found and what to do about it.

They are functions of a place, in ``STAGES``. Each opens its own transaction, whose statements have a time limit. An
examination that fails is a finding, too, and the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from uuid import uuid4

import psycopg
from django.core.checks import ERROR as CHECK_ERROR
from django.core.checks import CheckMessage, run_checks
from django.db import DatabaseError, connections, transaction
from django.template.defaultfilters import filesizeformat
from psycopg import sql

from django_graphile_worker import __version__, checks, conf, recurring, registry
from django_graphile_worker.api.connection import is_outside_transactions
from django_graphile_worker.checks import schema as of_schema
from django_graphile_worker.crontab.items import occurrences
from django_graphile_worker.exceptions import ConfigurationError, GraphileWorkerError
from django_graphile_worker.management.operator.formatting import absolute, counted
from django_graphile_worker.management.operator.workers import in_words, worker_state
from django_graphile_worker.operations.receivers import migration_state
from django_graphile_worker.operations.repair import repair
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.routing import Place, queue_connection
from django_graphile_worker.sql import control
from django_graphile_worker.sql.errors import INSUFFICIENT_PRIVILEGE, sqlstate
from django_graphile_worker.sql.inspection import diagnosis, job_list, overview
from django_graphile_worker.sql.inspection.diagnosis import SnapshotHolder, Table
from django_graphile_worker.sql.inspection.job_list import Criteria, State
from django_graphile_worker.sql.inspection.lock_holders import Holder, holders, versions_of
from django_graphile_worker.sql.inspection.statement_limits import change_settings, limit_statements
from django_graphile_worker.sql.install import installer
from django_graphile_worker.sql.schedules import from_code
from django_graphile_worker.sql.statements import Cursor, quoted, table
from django_graphile_worker.text import readable_duration
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.fetching.listener import FIRST_PROOF_WITHIN

OK, NOTE, WARNING, ERROR = LEVELS = ("ok", "note", "warning", "error")
# A table or its indexes are bloated from this size on, if there are so few rows for it.
BLOATED = 64 * 1024 * 1024
HEAP_BYTES_PER_ROW = 80 * 1024
INDEX_BYTES_PER_ROW = 4 * 1024
MAX_NAMES = 5
POOLER_REMEDY = (
    "Workers find jobs by polling only. A pooler in transaction mode does not pass notifications on: give workers a "
    'direct connection or a session pool, or set GRAPHILE_WORKER["LISTEN"] = False.'
)


@dataclass(frozen=True, slots=True)
class Fix:
    """What corrects a finding: a text that is said before, and a function that does it and returns what it did."""

    announcement: str
    run: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Finding:
    """What an examination found, what to do about it, and what corrects it if that is safe."""

    level: str
    text: str
    remedy: str = ""
    fix: Fix | None = None
    # The examinations of later stages would fail for the same reason.
    is_final: bool = False
    name: str = ""


Findings = Iterable[Finding]
Examination = Callable[[Place], Findings]


def examine(place: Place) -> Iterator[Finding]:
    """Yield the findings of all examinations, stage by stage."""
    for stage in STAGES:
        found = [each for name, examination in stage.items() for each in _examined(name, examination, place)]
        yield from found
        if any(each.is_final for each in found):
            return


def _examined(name: str, examination: Examination, place: Place) -> list[Finding]:
    try:
        return [replace(each, name=name) for each in examination(place)]
    except Exception as error:  # whatever is wrong with one subject, the others are examined
        reason = " ".join(str(error).split()) or type(error).__name__
        if place.using in connections and not connections[place.using].in_atomic_block:
            connections[place.using].close_if_unusable_or_obsolete()
        return [Finding(WARNING, f"This could not be examined: {reason}", name=name)]


@contextmanager
def bounded(place: Place, *, has_fixed_plan: bool = False) -> Iterator[Cursor]:
    """Open a transaction in which each statement, and each wait for a lock, takes at most ADMIN_STATEMENT_TIMEOUT."""
    seconds = conf.current().admin_statement_timeout
    with transaction.atomic(using=place.using), connections[place.using].cursor() as cursor:
        before = limit_statements(cursor, timeout=seconds, lock_timeout=seconds, has_fixed_plan=has_fixed_plan)
        yield cursor
        change_settings(cursor, before)


def _of_checks(messages: Iterable[CheckMessage], *, is_final: bool = False) -> Iterator[Finding]:
    for message in messages:
        if message.is_silenced():
            continue
        level = ERROR if message.level >= CHECK_ERROR else WARNING
        yield Finding(level, str(message.msg), str(message.hint or ""), is_final=is_final)


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(found[:MAX_NAMES]) + (f" and {len(found) - MAX_NAMES} more" if found[MAX_NAMES:] else "")


# Without the schema.


def _settings(place: Place) -> Findings:
    found = list(_of_checks(run_checks(tags=[checks.TAG])))
    try:
        queue_connection(place.using)
    except ConfigurationError as error:
        # The checks have usually said so.
        return [*(found or [Finding(ERROR, str(error))]), Finding(NOTE, "No database was examined.", is_final=True)]
    return found or [Finding(OK, f"the system checks of settings, tasks and crontab; version {__version__}")]


def _worker_connection(place: Place) -> Database:
    return Database(place.using, place.settings, part="doctor", deadline=conf.current().admin_statement_timeout)


def _connection(place: Place) -> Findings:
    database, began = _worker_connection(place), time.monotonic()
    try:
        database.connection()
        seconds = time.monotonic() - began
        with bounded(place) as cursor:
            server = diagnosis.server(cursor)
    except (psycopg.Error, DatabaseError) as error:
        reason = " ".join(str(error).split())
        remedy = f"Check settings.DATABASES[{place.using!r}], and that the server runs and accepts connections."
        return [Finding(ERROR, f"The database cannot be reached: {reason}", remedy, is_final=True)]
    finally:
        database.close()
    if server.is_standby:
        text = "The server is a standby, which accepts no writes."
        return [Finding(ERROR, text, "Connect to the primary.", is_final=True)]
    way = "directly" if database.is_direct else "through a pooler"
    text = f"PostgreSQL {server.version.split()[0]} as {server.role!r}, {way}, in {readable_duration(seconds)}"
    return [Finding(OK, text)]


def _notifications(place: Place) -> Findings:
    """Listen on one connection as a worker does, notify on Django's, and wait."""
    for setting, is_on in (("LISTEN", place.settings.listen), ("NOTIFY", place.settings.notify)):
        if not is_on:
            seconds = readable_duration(place.settings.poll_interval)
            return [Finding(NOTE, f"{setting} is False: workers find jobs by polling, every {seconds}.")]
    connections[place.using].ensure_connection()
    if not is_outside_transactions(place.using):
        return [Finding(NOTE, "Not tried: inside a transaction, PostgreSQL sends no notification.")]
    database, channel = _worker_connection(place), f"worker:doctor-{uuid4().hex}"
    try:
        with database.cursor() as cursor:
            cursor.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
            listener = cursor.connection
        with bounded(place) as sender:
            control.send_proof(sender, channel, schema=place.settings.schema)
            began = time.monotonic()
        is_heard = any(True for _ in listener.notifies(timeout=FIRST_PROOF_WITHIN, stop_after=1))
        waited = readable_duration(time.monotonic() - began)
        if not database.is_direct:
            # The session that now listens belongs to the pooler.
            with database.cursor() as cursor:
                cursor.execute(sql.SQL("unlisten {}").format(sql.Identifier(channel)))
    finally:
        database.close()
    if is_heard:
        return [Finding(OK, f"a notification arrived after {waited}")]
    return [Finding(WARNING, f"LISTEN was accepted, and no notification arrived in {waited}.", POOLER_REMEDY)]


def _clocks(place: Place) -> Findings:
    with bounded(place) as cursor:
        before = time.time()
        now = diagnosis.server(cursor).now
        after = time.time()
    difference, uncertainty = now - (before + after) / 2, (after - before) / 2
    text = f"this machine and the database differ by {readable_duration(abs(difference))}"
    if abs(difference) - uncertainty <= overview.CLOCK_DIFFERENCE:
        return [Finding(OK, text)]
    ahead = "The database" if difference > 0 else "This machine"
    remedy = f"{ahead} is ahead. Jobs are due by the clock of the database. Synchronize both clocks with NTP."
    return [Finding(WARNING, f"The clocks of {text}.", remedy)]


def _snapshots(place: Place) -> list[SnapshotHolder]:
    with bounded(place) as cursor:
        return diagnosis.snapshot_holders(cursor, seconds=overview.LONG_TRANSACTION)


def _transactions(place: Place) -> Findings:
    found = [_snapshot_holder(each) for each in _snapshots(place)]
    with bounded(place) as cursor:
        server = diagnosis.server(cursor)
    if not server.sees_sessions:
        text = f"Only the transactions of {server.role!r} are visible with their times."
        found.append(Finding(NOTE, text, f"grant pg_read_all_stats to {quoted(server.role)}; shows all."))
    return found or [Finding(OK, f"none has been open for {readable_duration(overview.LONG_TRANSACTION)}")]


def _snapshot_holder(holder: SnapshotHolder) -> Finding:
    query = f": {redact_text(' '.join(holder.query.split()))}" if holder.query else "."
    return Finding(WARNING, f"{holder.text}{query}", holder.remedy)


def _notify_queue(place: Place) -> Findings:
    with bounded(place) as cursor:
        usage = overview.notify_queue_usage(cursor)
    if usage <= overview.FULL_NOTIFY_QUEUE:
        return [Finding(OK, f"{usage:.0%} full")]
    remedy = "From 90% on, workers find jobs only by polling. End the session that listens in a long transaction."
    return [Finding(ERROR, f"The NOTIFY queue of the server is {usage:.0%} full.", remedy)]


def _schema(place: Place) -> Findings:
    connection, schema = connections[place.using], place.settings.schema
    with bounded(place) as cursor:
        found = of_schema.check_presence(connection, schema)
        missing = [] if found else installer.missing_tables(cursor, schema=schema)
    if found:
        return _of_checks(found, is_final=True)
    if missing:
        remedy = 'Run "manage.py migrate graphile_worker". If it has nothing to do, restore them from a backup.'
        return [Finding(ERROR, f"The schema {schema!r} lacks tables: {_listed(missing)}.", remedy, is_final=True)]
    return [Finding(OK, f"{schema!r} in the database {place.using!r}")]


def _migrations(place: Place) -> Findings:
    try:
        with bounded(place):
            pending, newer = migration_state(connections[place.using])
    except DatabaseError as error:
        if sqlstate(error) != INSUFFICIENT_PRIVILEGE:
            raise
        text = "The role may not read which migrations were applied. So the texts of functions are not compared."
        yield Finding(NOTE, text)
        return
    if newer:
        text = f"A newer version of this package has migrated the database: {_listed(newer)}."
        yield Finding(NOTE, text, f"This process has {__version__}. Upgrade it, too.")
    if pending:
        remedy = 'Run "manage.py migrate graphile_worker".'
        yield Finding(ERROR, f"Migrations were not applied: {_listed(pending)}.", remedy)
    elif not newer:
        yield Finding(OK, "all applied")


# With the schema.


def _role(place: Place) -> Findings:
    schema = place.settings.schema
    with bounded(place) as cursor:
        role, rights = diagnosis.server(cursor).role, diagnosis.rights(cursor, schema=schema)
        is_hidden = bool(of_schema.check_visibility(cursor, place.using, schema))
    if not rights.missing and not is_hidden:
        also = ", and migrate" if rights.is_owner else ""
        return [Finding(OK, f"{role!r} may add and run jobs{also}")]
    able = "may add jobs, but not run them" if rights.may_add else "may neither add nor run jobs"
    text = f"The role {role!r} {able}: it has no rights to {_listed(rights.missing) or 'the rows'}."
    remedy = f'For a worker, let the owner run what "manage.py graphile_worker grants {role} --kind worker" prints.'
    return [Finding(NOTE if rights.may_add else ERROR, text, remedy, is_final=is_hidden)]


def owns_schema(place: Place) -> bool:
    with bounded(place) as cursor:
        return diagnosis.rights(cursor, schema=place.settings.schema).is_owner


def _of_check(check: of_schema.SchemaCheck, text: str, *, is_final: bool = False) -> Examination:
    """Return the examination that is a system check, too; the text says that it found nothing."""

    def examination(place: Place) -> Findings:
        with bounded(place) as cursor:
            messages = check(cursor, place.using, place.settings.schema)
        return list(_of_checks(messages, is_final=is_final)) or [Finding(OK, text)]

    return examination


def _functions(place: Place) -> Findings:
    fix = Fix("Restoring functions.", partial(_repaired, place, builds_indexes=False))
    found = _of_check(of_schema.check_functions, "those of this package")(place)
    return [each if each.level == OK else replace(each, fix=fix) for each in found]


def _indexes(place: Place) -> Findings:
    """Find missing indexes. To build one, PostgreSQL waits for all open transactions, however long that takes."""
    found = list(_of_check(of_schema.check_indexes, "complete")(place))
    if found[0].level == OK:
        return found
    in_the_way = [each for each in _snapshots(place) if each.kind in ("session", "prepared")]
    if in_the_way:
        remedy = f"End this first: {in_the_way[0].text}. {in_the_way[0].way_out} Then build them with --fix."
        return [replace(each, remedy=remedy) for each in found]
    fix = Fix(
        "Building indexes. On a large table, this waits for all transactions that are open.", partial(_repaired, place)
    )
    return [replace(each, fix=fix) for each in found]


def _repaired(place: Place, *, builds_indexes: bool = True) -> str:
    done = repair(place.using, place.settings.schema, builds_indexes=builds_indexes)
    return str(done).replace("\n", " ")


def _tables_of(place: Place) -> list[Table]:
    with bounded(place) as cursor:
        return diagnosis.tables(cursor, schema=place.settings.schema)


def _autovacuum(place: Place) -> Findings:
    with bounded(place) as cursor:
        server = diagnosis.server(cursor)
    found = []
    if not (server.has_autovacuum and server.counts_rows):
        remedy = "Set autovacuum = on and track_counts = on in postgresql.conf, and reload it."
        found.append(Finding(ERROR, "Autovacuum is off in the whole server: tables only grow.", remedy))
    for each in _tables_of(place):
        if not each.has_autovacuum:
            remedy = f"alter table {table(each.name, place.settings.schema)} reset (autovacuum_enabled);"
            fix = Fix(f"Switching autovacuum on for {each.name}.", partial(_reset_autovacuum, place, each.name))
            found.append(Finding(ERROR, f"Autovacuum is off for the table {each.name}.", remedy, fix))
    return found or [Finding(OK, "on")]


def _reset_autovacuum(place: Place, name: str) -> str:
    with bounded(place) as cursor:
        diagnosis.reset_autovacuum(cursor, name, schema=place.settings.schema)
    return f"Autovacuum is on for the table {name}."


def _tables(place: Place) -> Findings:
    is_held_back = bool(_snapshots(place))
    found = [each for one in _tables_of(place) for each in _of_table(place, one, is_held_back=is_held_back)]
    return found or [Finding(OK, "few dead rows, no bloat")]


def _of_table(place: Place, found: Table, *, is_held_back: bool) -> Findings:
    name, ago = table(found.name, place.settings.schema), found.vacuumed_seconds_ago
    is_recent = ago is not None and ago < overview.DEAD_ROWS_STAY
    if found.dead_rows > max(overview.MANY_DEAD_ROWS, found.rows) and not (is_recent or found.is_being_vacuumed):
        last = "never" if ago is None else f"{readable_duration(ago)} ago"
        text = f"{found.name} has {found.dead_rows:,} dead rows, and {found.rows:,.0f} live ones. Last vacuum: {last}."
        if is_held_back:
            yield Finding(WARNING, text, "Vacuum cannot remove them before the transactions that hold it back end.")
        else:
            fix = Fix(f"Vacuuming the table {found.name}.", partial(_vacuum, place, found.name))
            yield Finding(WARNING, text, f"vacuum (analyze) {name};", fix)
    if found.heap_bytes >= max(BLOATED, HEAP_BYTES_PER_ROW * found.rows):
        text = f"{found.name} takes {filesizeformat(found.heap_bytes)} for {found.rows:,.0f} rows."
        remedy = f"The room is used again. To return it, stop workers and run: vacuum (full, analyze) {name};"
        yield Finding(NOTE, text, remedy)
    if found.index_bytes >= max(BLOATED, INDEX_BYTES_PER_ROW * found.rows):
        text = f"The indexes of {found.name} take {filesizeformat(found.index_bytes)} for {found.rows:,.0f} rows."
        yield Finding(WARNING, text, f"reindex table concurrently {name};")


def _vacuum(place: Place, name: str) -> str:
    with connections[place.using].cursor() as cursor:
        diagnosis.vacuum(cursor, name, schema=place.settings.schema)
    return f"Vacuumed the table {name}."


# Workers and what they run.


def _holders(place: Place) -> list[Holder]:
    with bounded(place) as cursor:
        return holders(cursor, schema=place.settings.schema)


def _workers(place: Place) -> Findings:
    found = _holders(place)
    alive = [each for each in found if worker_state(each) == "alive"]
    silent = [each for each in found if worker_state(each) == "silent" and (each.jobs or each.queues)]
    polling = [each for each in alive if each.only_polls] if place.settings.listen else []
    if silent:
        holds = "1 silent worker holds" if len(silent) == 1 else f"{len(silent)} silent workers hold"
        text = f"{holds} jobs: {_listed(each.host for each in silent)}."
        remedy = 'Live workers recover the jobs. If none is alive: "manage.py graphile_worker sweep".'
        yield Finding(WARNING, text, remedy)
    if unheard := sorted(each.host_and_pid for each in polling if each.listens):
        yield Finding(WARNING, f"Workers only poll: {_listed(unheard)}.", POOLER_REMEDY)
    if by_choice := sorted(each.host_and_pid for each in polling if not each.listens):
        yield Finding(NOTE, f"Workers only poll, because they were started with LISTEN off: {_listed(by_choice)}.")
    if not alive:
        yield Finding(WARNING, f"No worker is alive{_waiting(place)}.", 'Start one: "manage.py runworker".')
    elif not silent:
        yield Finding(OK, f"{len(alive)} alive")


def _waiting(place: Place) -> str:
    with bounded(place, has_fixed_plan=True) as cursor:
        counts = job_list.count_states(cursor, Criteria(), schema=place.settings.schema, states=[State.READY])
    ready = counts[State.READY]
    if not ready.number:
        return ""
    number = f"{'more than ' if ready.is_more else ''}{counted(ready.number, 'job')}"
    return f", and {number} {'is' if number == '1 job' else 'are'} ready"


def _pauses(place: Place) -> Findings:
    """Name what is paused: often the reason why nothing runs."""
    with bounded(place) as cursor:
        found = control.active_pauses(cursor, schema=place.settings.schema)
    if not found:
        return [Finding(OK, "none")]
    listed = _listed(map(_paused, found))
    return [Finding(NOTE, f"Paused: {listed}.", '"manage.py graphile_worker resume" ends a pause.')]


def _paused(pause: control.Pause) -> str:
    until = "" if pause.until is None else f" until {absolute(pause.until)}"
    return f"{pause} since {absolute(pause.paused_at)}{until}{f' ({pause.reason})' if pause.reason else ''}"


def _versions(place: Place) -> Findings:
    versions = versions_of(_holders(place), place.settings.worker_timeout)
    if versions.keys() <= {__version__}:
        return [Finding(OK, __version__)]
    remedy = "If no upgrade is under way, restart the workers that have another version."
    return [Finding(NOTE, f"This process has {__version__}. Workers have {in_words(versions)}.", remedy)]


def _tasks(place: Place) -> Findings:
    settings = place.settings
    with bounded(place, has_fixed_plan=True) as cursor:
        unserved = overview.unserved_tasks(cursor, schema=settings.schema, timeout=settings.worker_timeout)
    if not unserved:
        return [Finding(OK, "no job waits for a task that no live worker has")]
    listed = _listed(f"{each.identifier} (#{each.job_id})" for each in unserved)
    remedy = (
        "This project has these tasks. Restart the workers, or check their settings TASKS and EXCLUDE_TASKS."
        if all(each.identifier in registry.tasks for each in unserved)
        else "Deploy the code of these tasks and restart the workers, or delete the jobs."
    )
    return [Finding(ERROR, f"No live worker has the tasks of waiting jobs: {listed}.", remedy)]


def _crontab(place: Place) -> Findings:
    """Find items of other programs with the identifiers of ours: only one of both adds a job at a time they share."""
    try:
        items = recurring.collect(place.settings, with_tasks=place.installation == conf.DEFAULT)
    except (GraphileWorkerError, OSError, ValueError):
        return [Finding(NOTE, "Not examined: the crontab has mistakes.")]
    with bounded(place) as cursor:
        known = from_code.known_crontabs(cursor, [item.name for item in items], schema=place.settings.schema)
    found = []
    for item in items:
        row = known.get(item.name)
        last = None if row is None or row.is_paused else row.last_execution
        if last is not None and not any(occurrences(item, last - timedelta(minutes=1), last)):
            text = f"The item {item.name!r} last ran at {last:%Y-%m-%d %H:%M} UTC, when it is not due by its line here."
            remedy = (
                "If its line was not changed since, another project, or a worker of Node.js, has an item of the same "
                "identifier, and each keeps runs of the other from being added. Give one of them another identifier."
            )
            found.append(Finding(NOTE, text, remedy))
    return found or [Finding(OK, f"{counted(len(items), 'item')}, none shared with another program")]


# The examinations of a stage are made if none of an earlier stage has a final finding.
STAGES: tuple[Mapping[str, Examination], ...] = (
    {"settings": _settings},
    {"connection": _connection},
    {
        "notifications": _notifications,
        "clocks": _clocks,
        "transactions": _transactions,
        "notify queue": _notify_queue,
        "schema": _schema,
    },
    {"migrations": _migrations, "role": _role},
    {
        "ledger": _of_check(
            of_schema.check_ledger, "no newer migration of graphile-worker breaks this version", is_final=True
        )
    },
    {
        "functions": _functions,
        "indexes": _indexes,
        "autovacuum": _autovacuum,
        "tables": _tables,
        "workers": _workers,
        "worker timeouts": _of_check(of_schema.check_timeouts, "no differences"),
        "other workers": _of_check(of_schema.check_other_workers, "none that ignores limits"),
        "Rust workers": _of_check(of_schema.check_rust_recovery, "none that takes jobs of others"),
        "pauses": _pauses,
        "versions": _versions,
        "tasks": _tasks,
        "schedules": _of_check(of_schema.check_schedules, "each has a task and valid times"),
        "crontab": _crontab,
    },
)
