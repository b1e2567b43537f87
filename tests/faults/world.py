"""The database of a fault test: adds jobs, reads rows, and checks the history for the promised invariants."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import namedtuple_row

from tests.faults.processes import WAIT_TIMEOUT, Wait, WorkerProcess
from tests.support.emptying import empty_tables
from tests.worker_app import history

EFFECTS = "create table if not exists fault_history.effect (id bigserial, job_id bigint)"
# A trigger that records removed workers: when they were removed, and their last heartbeat.
LEASES = """
create table if not exists fault_history.lost_lease (
    worker_id text, last_heartbeat_at timestamptz, timeout_seconds float8, at timestamptz default clock_timestamp());
create or replace function fault_history.note_lost_lease() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if current_query() not like '%gw:deregister-worker%' then
        insert into fault_history.lost_lease (worker_id, last_heartbeat_at, timeout_seconds)
        values (old.id, old.last_heartbeat_at, old.timeout_seconds);
    end if;
    return old;
end $$;
create or replace trigger note_lost_lease after delete on {schema}._private_workers
for each row execute function fault_history.note_lost_lease()"""


class Execution(NamedTuple):
    """A run of a job, from its start to its end or to the death of its process."""

    job_id: int
    attempt: int
    pid: int
    worker_id: str
    queue_name: str | None
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None


@dataclass
class World:
    """A migrated database, its address for workers, and the jobs that the test has added."""

    url: str
    schema: str
    wait_until: Wait
    job_ids: list[int] = field(default_factory=list)
    _connection: psycopg.Connection[Any] | None = None

    def query(self, text: str, *parameters: Any) -> list[Any]:
        """Run a statement on the connection of the test; {schema} is the worker schema."""
        statement = text.replace("{schema}", f'"{self.schema}"')
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.url, autocommit=True, row_factory=namedtuple_row)
        cursor = self._connection.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []

    def value(self, text: str, *parameters: Any) -> Any:
        return self.query(text, *parameters)[0][0]

    @classmethod
    @contextmanager
    def open(cls, url: str, schema: str, wait_until: Wait) -> Iterator[World]:
        """Empty the database and yield it. Its rows stay after a test, to be examined after a failure."""
        with closing(cls(url, schema, wait_until)) as world:
            world.prepare()
            world.clean()
            yield world

    def prepare(self) -> None:
        self.prepare_history()
        self.query(LEASES)

    def prepare_history(self) -> None:
        self.query(history.TABLE)
        self.query(EFFECTS)

    def clean(self) -> None:
        """Empty all tables but those that record what is installed."""
        assert self._connection is not None
        empty_tables(self._connection, ["fault_history", self.schema])
        self.job_ids.clear()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    # Jobs.

    def add(self, task: str, payload: Any = None, **options: Any) -> int:
        """Add a job with the SQL function, and return its id."""
        named = "".join(f", {name} := %s" for name in options)
        (row,) = self.query(
            f"select id from {{schema}}.add_job(%s, %s::json{named})",
            task,
            json.dumps(payload or {}),
            *options.values(),
        )
        self.job_ids.append(row.id)
        return int(row.id)

    def add_many(self, count: int, task: str = "quick", payload: Any = None, **columns: Any) -> list[int]:
        """Add a number of jobs in one statement, and return their ids."""
        queue_name = columns.pop("queue_name", None)
        max_attempts = columns.pop("max_attempts", 25)
        rows = self.query(
            "select id from {schema}.add_jobs((select array_agg(row(%s, %s::json, %s, null, %s, null, null, null)"
            "::{schema}.job_spec) from generate_series(1, %s)))",
            task,
            json.dumps(payload or {}),
            queue_name,
            max_attempts,
            count,
        )
        ids = [int(row.id) for row in rows]
        if task != "quiet":
            self.job_ids += ids
        return ids

    @contextmanager
    def in_one_transaction(self) -> Iterator[None]:
        """Run the statements of the block in one transaction."""
        self.query("begin")
        yield
        self.query("commit")

    def locked(self) -> int:
        return int(self.value("select count(*) from {schema}._private_jobs where locked_by is not null"))

    def jobs(self) -> list[Any]:
        return self.query("select * from {schema}._private_jobs order by id")

    def job(self, job_id: int) -> Any:
        rows = self.query("select * from {schema}._private_jobs where id = %s", job_id)
        return rows[0] if rows else None

    def worker_id_of(self, job_id: int) -> str | None:
        """Return the id of the worker that has claimed a job."""
        locked_by = self.job(job_id).locked_by
        return None if locked_by is None else str(locked_by).partition("/")[0]

    def count(self) -> int:
        return int(self.value("select count(*) from {schema}._private_jobs"))

    def workers(self) -> list[str]:
        return [row.id for row in self.query("select id from {schema}._private_workers")]

    def continue_jobs(self, word: str) -> None:
        """Let the jobs continue that wait for this word."""
        self.record("go", word)

    def record(self, kind: str, note: str | None = None, pid: int = 0) -> None:
        self.query("insert into fault_history.event (kind, pid, note) values (%s, %s, %s)", kind, pid, note)

    # The history.

    def events(self, kind: str | None = None) -> list[Any]:
        return self.query(
            "select * from fault_history.event where kind = coalesce(%s::text, kind) order by at, id", kind
        )

    def count_events(self, kind: str) -> int:
        return int(self.value("select count(*) from fault_history.event where kind = %s", kind))

    def wait_for(self, kind: str, times: int = 1, timeout: float = WAIT_TIMEOUT) -> None:
        self.wait_until(lambda: self.count_events(kind) >= times, timeout=timeout)

    def wait_for_progress(self, ends: int) -> None:
        """Wait until a number of further jobs, or all jobs, have ended; postponed jobs do not wait."""
        enough = self.count_events("end") + ends
        self.wait_until(lambda: self.is_drained() or self.count_events("end") >= enough)

    def is_drained(self) -> bool:
        """Make postponed jobs due, and return whether no job is left.

        Jobs that were recovered more than once wait longer than a test has time for.
        """
        self.query("update {schema}._private_jobs set run_at = now() where locked_at is null and run_at > now()")
        return self.count() == 0

    def wait_until_empty(self, timeout: float = WAIT_TIMEOUT) -> None:
        try:
            self.wait_until(lambda: self.count() == 0, timeout=timeout)
        except BaseException:
            for job in self.jobs()[:10]:
                print(job)  # noqa: T201 - pytest shows it with the failure
            raise

    def record_death(self, worker: WorkerProcess) -> None:
        """Record the death of a worker: its unfinished runs end with it. Expire its lease."""
        self.record("death", " ".join(worker.worker_ids()), pid=worker.pid)
        self.expire_lease(worker)

    def expire_lease(self, worker: WorkerProcess) -> None:
        """Set the last heartbeat of a dead worker back: its lease is long, for slow machines.

        Others watch it for two of its heartbeat intervals before they declare it dead.
        """
        self.query(
            "update {schema}._private_workers set last_heartbeat_at = now() - interval '1 hour',"
            " heartbeat_seconds = 0.1 where id = any (%s)",
            worker.worker_ids(),
        )

    def kill(self, worker: WorkerProcess) -> None:
        worker.kill()
        self.record_death(worker)

    def executions(self) -> list[Execution]:
        deaths: dict[int, datetime] = {}
        runs: dict[tuple[int, int, int], list[Any]] = {}
        finished: list[Execution] = []
        for event in self.events():
            key = (event.job_id, event.attempt, event.pid)
            if event.kind == "death":
                deaths[event.pid] = event.at
            elif event.kind == "start":
                if key in runs:
                    finished.append(_execution(key, runs[key], None, deaths))
                runs[key] = [event]
            elif event.kind in {"end", "failed"} and key in runs:
                finished.append(_execution(key, runs.pop(key), event, deaths))
        finished += [_execution(key, started, None, deaths) for key, started in runs.items()]
        return sorted(finished, key=lambda run: run.started_at)

    # The invariants.

    def check(self) -> None:
        """Check that no job is lost, runs twice at once or overlaps in its queue, and that no lease was lost early."""
        runs = self.executions()
        self.check_no_loss(runs)
        ended = self.expired_leases()
        overlaps = overlapping(runs, key=lambda run: run.job_id, ended=ended)
        assert overlaps == [], f"jobs ran twice at the same time: {overlaps}"
        queued = [run for run in runs if run.queue_name is not None]
        crowded = overlapping(queued, key=lambda run: run.queue_name, ended=ended)
        assert crowded == [], f"jobs of one queue overlapped: {crowded}"

    def expired_leases(self) -> dict[str, datetime]:
        """Return when the leases of living workers expired, and check that none was lost before its timeout."""
        deaths = {worker_id: death.at for death in self.events("death") for worker_id in (death.note or "").split()}
        rows = self.query("select * from fault_history.lost_lease")
        # A lease may expire while its worker is suspended, and the worker may die later.
        lost = [row for row in rows if row.worker_id not in deaths or row.at < deaths[row.worker_id]]
        early = [row for row in lost if (row.at - row.last_heartbeat_at).total_seconds() < (row.timeout_seconds or 0.0)]
        assert early == [], f"leases were lost before they expired: {early}"
        return {row.worker_id: row.at for row in lost}

    def check_no_loss(self, runs: Sequence[Execution]) -> None:
        """Check that every added job has succeeded or still exists."""
        done = {run.job_id for run in runs if run.outcome == "end"}
        present = {job.id for job in self.jobs()}
        assert set(self.job_ids) - done - present == set(), "jobs were lost"
        assert {run.job_id for run in runs} - set(self.job_ids) == set(), "jobs ran that the test did not add"

    def check_nothing_is_held(self) -> None:
        """Check that no job and no queue is locked and no worker is registered, as after a clean stop."""
        locked = self.query("select id, locked_by from {schema}._private_jobs where locked_by is not null")
        queues = self.query("select queue_name from {schema}._private_job_queues where locked_by is not null")
        assert (locked, queues, self.workers()) == ([], [], [])


def overlapping(
    runs: Iterable[Execution], key: Callable[[Execution], Any], ended: Mapping[str, datetime]
) -> list[tuple[Execution, Execution]]:
    """Return pairs of runs with the same key that ran at the same time, while the leases of both held."""
    by_key: dict[Any, list[Execution]] = defaultdict(list)
    found = []
    for run in runs:
        same = by_key[key(run)]
        found += [(other, run) for other in same if other.ended_at is None or other.ended_at > run.started_at]
        same.append(run)
    return [pair for pair in found if all(_holds_lease(each, pair[1].started_at, ended) for each in pair)]


def _holds_lease(run: Execution, moment: datetime, ended: Mapping[str, datetime]) -> bool:
    return run.worker_id not in ended or ended[run.worker_id] > moment


def _execution(
    key: tuple[int, int, int], started: Sequence[Any], ended: Any | None, deaths: dict[int, datetime]
) -> Execution:
    (start,) = started
    job_id, attempt, pid = key
    ended_at = ended.at if ended is not None else deaths.get(pid)
    outcome = ended.kind if ended is not None else None
    return Execution(job_id, attempt, pid, start.worker_id, start.note, start.at, ended_at, outcome)
