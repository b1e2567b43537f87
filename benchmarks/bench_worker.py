"""Compare the worker with graphile-worker, in interleaved runs. Ratios depend less on the machine than figures.

Each worker has a database of its own, with a schema that it created itself.

python -m benchmarks.bench_worker [--rounds=3] [--only=drain,queues,backlog,latency,start,idle,counting] [--jobs=100000]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from benchmarks.database import SCHEMA, Database, configured, scratch_database
from benchmarks.peers import node

OURS = "ours"
OURS_ELSEWHERE = "ours, system's"
NODE_TUNED = "node, tuned"
NODE_DEFAULT = "node, defaults"
NODE_COMMAND = "node, command"
SETTINGS: dict[str, dict[str, Any]] = {
    OURS: {},
    NODE_TUNED: {
        "concurrentJobs": 10,
        "maxPoolSize": 12,
        "localQueue": {"size": 2000, "refetchDelay": {"durationMs": 10}},
        "completeJobBatchDelay": 0,
        "failJobBatchDelay": 0,
    },
    NODE_DEFAULT: {"concurrentJobs": 10, "maxPoolSize": 12},
}
PROJECT = Path(__file__).with_name("project")
# A start is short and its time varies, so it is measured in more rounds than the others.
STARTS = 10
BACKLOG = 500_000
READY = 20_000
JOBS = f"{SCHEMA}._private_jobs"
OLD = "now() - interval '1 hour'"
SHAPES = {
    "empty table": "",
    "future": f"insert into {JOBS} (task_id, run_at) select {{task}}, now() + interval '1 day' from {{series}}",
    "permanently failed": f"insert into {JOBS} (task_id, run_at, attempts) select {{task}}, {OLD}, 25 from {{series}}",
    "unknown task": f"insert into {JOBS} (task_id, run_at) select {{unknown}}, {OLD} from {{series}}",
    "one busy queue": f"insert into {JOBS} (task_id, run_at, job_queue_id) select {{task}}, {OLD}, 1 from {{series}}",
    "50,000 queues, future": f"insert into {JOBS} (task_id, run_at, job_queue_id)"
    " select {task}, now() + interval '1 day', 1 + n % 50000 from {series}",
    "50,000 queues, ready": f"insert into {JOBS} (task_id, run_at, job_queue_id, priority)"
    f" select {{task}}, {OLD}, 1 + n % 50000, 1 from {{series}}",
    "50,000 busy queues": f"insert into {JOBS} (task_id, run_at, job_queue_id)"
    f" select {{task}}, {OLD}, 1 + n % 50000 from {{series}}",
    "forbidden flag": f"insert into {JOBS} (task_id, run_at, flags)"
    f""" select {{task}}, {OLD}, '{{{{"heavy": true}}}}' from {{series}}""",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--only", default="drain,queues,backlog,latency,start,idle,counting")
    options = parser.parse_args()
    has_node = node.executable() is not None
    if not has_node:
        print("npm is not installed, so graphile-worker is not measured, and there are no ratios.")
    with ExitStack() as stack:
        database = stack.enter_context(scratch_database())
        theirs = stack.enter_context(scratch_database(migrate_with_node, "_node")) if has_node else database
        bench = Bench(database, theirs, options.rounds, has_node)
        for name in options.only.split(","):
            print(f"\n-- {name}", flush=True)
            getattr(bench, name)(options)


def migrate_with_node(url: str) -> None:
    environment = os.environ | {"DATABASE_URL": url_for_node(url)}
    subprocess.run([*command(NODE_DEFAULT), "migrate"], env=environment, check=True)


class Drained(NamedTuple):
    """The result of a drain: jobs a second, and CPU microseconds per job, in total and for statistics."""

    rate: float
    cpu: float
    counting: float


class Bench:
    def __init__(self, ours: Database, theirs: Database, rounds: int, has_node: bool) -> None:
        self.databases = {
            OURS: ours,
            OURS_ELSEWHERE: ours,
            NODE_TUNED: theirs,
            NODE_DEFAULT: theirs,
            NODE_COMMAND: theirs,
        }
        self.database = ours
        self.rounds = rounds
        # The backlog does not run, and the query for unfinished jobs must not read it.
        self.ready_after = 0
        self.peers = [OURS, NODE_TUNED, NODE_DEFAULT] if has_node else [OURS]

    def drain(self, options: argparse.Namespace) -> None:
        """Measure trivial jobs without a queue, in one process, ten at a time."""

        def prepare(peer: str) -> int:
            count = int(options.jobs if peer != NODE_DEFAULT else options.jobs // 10)
            self.database.empty()
            self.load(count)
            return count

        self.rates(self.peers, prepare)

    def queues(self, options: argparse.Namespace) -> None:
        for queues in (1, 500):
            print(f"{queues} queue(s), 5,000 jobs")

            def prepare(peer: str, queues: int = queues) -> int:
                self.database.empty()
                self.make_queues(queues)
                self.load(5000, queue=f"(select min(id) from {SCHEMA}._private_job_queues) + n % {queues}")
                return 5000

            self.rates(self.peers, prepare, time_limit=15)

    def backlog(self, options: argparse.Namespace) -> None:
        """Measure 20,000 ready jobs beside 500,000 others, each time after an empty table, for the ratio."""
        ratios: dict[str, list[float]] = {shape: [] for shape in SHAPES if SHAPES[shape]}
        rates: dict[str, list[float]] = {shape: [] for shape in SHAPES}
        for _ in range(self.rounds):
            for shape in ratios:
                base, rate = self.beside("empty table"), self.beside(shape)
                rates["empty table"].append(base)
                rates[shape].append(rate)
                ratios[shape].append(rate / base)
        for shape, measured in rates.items():
            ratio = f"   {statistics.median(ratios[shape]):5.2f} of the empty table" if shape in ratios else ""
            print(f"  {shape:24} {statistics.median(measured):10,.0f} jobs/s{ratio}", flush=True)

    def beside(self, shape: str) -> float:
        def prepare(peer: str) -> int:
            self.database.empty()
            self.make_backlog(shape)
            self.ready_after = int(self.database.scalar(f"select coalesce(max(id), 0) from {JOBS}"))
            self.load(READY)
            return READY

        settings = {"forbidden_flags": ["heavy"]} if shape == "forbidden flag" else {}
        try:
            return self.rate(OURS, prepare, settings=settings)
        finally:
            self.ready_after = 0

    def latency(self, options: argparse.Namespace) -> None:
        """Measure the time from add_job to the first line of the task, for an idle worker and a job every 20 ms."""
        peers = [peer for peer in self.peers if peer != NODE_TUNED]
        measured: dict[str, list[float]] = {peer: [] for peer in peers}
        for _ in range(self.rounds):
            for peer in peers:
                self.database = self.databases[peer]
                self.database.empty()
                measured[peer] += self.latencies(peer)
        for peer, milliseconds in measured.items():
            milliseconds.sort()
            p50, p99 = milliseconds[len(milliseconds) // 2], milliseconds[int(len(milliseconds) * 0.99)]
            print(f"  {peer:16} p50 {p50:6.2f} ms   p99 {p99:6.2f} ms", flush=True)

    def start(self, options: argparse.Namespace) -> None:
        """Measure the time from the start of the process to the first job, of both commands and of Node's library.

        Node is built with all optimizations. The current Python may not be, so the Python of the system is measured,
        too, if it can run the same code.
        """
        ours = [OURS, OURS_ELSEWHERE] if systems_python() else [OURS]
        peers = ours if self.peers == [OURS] else [*ours, NODE_COMMAND, NODE_DEFAULT]
        measured: dict[str, list[tuple[float, float]]] = {peer: [] for peer in peers}
        for number in range(max(self.rounds, STARTS) + 1):
            for peer in peers:
                self.database = self.databases[peer]
                self.database.empty()
                self.load(1, task="stamp", payload="json_build_object('number', 0)")
                figures = self.first_job(peer)
                # The first round compiles byte code and fills the caches of the disk, and is not counted.
                if number:
                    measured[peer].append(figures)
        medians = {peer: [statistics.median(column) for column in zip(*measured[peer], strict=True)] for peer in peers}
        for peer, (wall, cpu) in medians.items():
            ratios = ", ".join(f"{each} is {medians[each][0] / wall:4.2f} of it" for each in ours)
            shown = "" if peer in ours else f"   {ratios}"
            print(f"  {peer:16} {wall:6.0f} ms, {cpu:4.0f} ms of them CPU{shown}", flush=True)

    def first_job(self, peer: str) -> tuple[float, float]:
        """Return the milliseconds until the first job, and the CPU milliseconds."""
        began = time.time() * 1000
        with self.started_worker(peer) as process:
            # The command first prints a banner.
            stamp = next(json.loads(line) for line in process.stdout or () if '"at"' in line)
        return stamp["at"] - began, stamp["cpu"]

    def started_worker(self, peer: str) -> AbstractContextManager[subprocess.Popen[str]]:
        if peer in (OURS, OURS_ELSEWHERE):
            python = sys.executable if peer == OURS else str(systems_python())
            return our_command(self.database.url, python)
        if peer == NODE_COMMAND:
            arguments = [*node.command_line(), "-c", url_for_node(self.database.url)]
            return started(arguments, cwd=node.PROJECT, env=dict(os.environ))
        return self.worker(peer, "serve")

    def idle(self, options: argparse.Namespace) -> None:
        """Measure a worker with fifty slots that has no jobs for a minute."""
        settings = {OURS: {"concurrency": 50}, NODE_DEFAULT: {"concurrentJobs": 50, "maxPoolSize": 52}}
        for peer in [peer for peer in self.peers if peer != NODE_TUNED]:
            self.database = self.databases[peer]
            self.database.empty()
            # Autovacuum would add dozens of transactions that are not the worker's.
            with (
                configured(self.database.connection, {"autovacuum": "off"}),
                self.worker(peer, "serve", settings=settings[peer]) as process,
            ):
                next(messages(process))
                # Wait for the start, the first recovery, and the ten seconds after which an idle session reports its
                # transactions.
                time.sleep(30)
                before, cpu = self.transactions(), cpu_seconds(process.pid)
                time.sleep(60)
                # Two transactions are those of the measurement itself.
                rate = (self.transactions() - before - 2) / 60
                share = (cpu_seconds(process.pid) - cpu) / 60 * 100
                print(f"  {peer:16} {rate:5.2f} transactions/s   {memory(process.pid):4.0f} MB   {share:4.1f} % CPU")

    def counting(self, options: argparse.Namespace) -> None:
        """Measure trivial jobs with and without statistics, which are written every second instead of every ten."""
        measured: dict[str, list[Drained]] = {"": [], "1": []}
        for number in range(2 * self.rounds):
            for uncounted in ("", "1") if number % 2 else ("1", ""):
                measured[uncounted].append(self.drained(int(options.jobs), {"COUNT_NOTHING": uncounted}))
        for place, what in enumerate(("jobs/s", "µs CPU/job")):
            counted, uncounted = ([each[place] for each in measured[kind]] for kind in ("", "1"))
            more = [mine / other - 1 for mine, other in zip(counted, uncounted, strict=True)]
            print(
                f"  {what:12} {statistics.median(counted):10,.1f} with statistics"
                f" {statistics.median(uncounted):10,.1f} without   {statistics.median(more) * 100:+6.2f} %"
                f" ({min(more) * 100:+.1f} to {max(more) * 100:+.1f} % in {len(more)} pairs)",
                flush=True,
            )
        shares = [each.counting / each.cpu * 100 for each in measured[""]]
        print(
            f"  measured directly, statistics take {statistics.median(shares):.2f} % of the worker's CPU"
            f" ({min(shares):.2f} to {max(shares):.2f} %)"
        )

    def drained(self, count: int, environment: dict[str, str]) -> Drained:
        self.database = self.databases[OURS]
        self.database.empty()
        self.load(count)
        settings = {"heartbeat_interval": 1.0}
        with self.worker(OURS, "drain", str(count), settings=settings, environment=environment) as process:
            result = next(message for message in messages(process) if "seconds" in message)
        assert result["jobs"] == count, result
        cpu, counting = (float(result[name]) / count * 1e6 for name in ("cpu", "counting"))
        return Drained(count / float(result["seconds"]), cpu, counting)

    # Helpers of the measurements.

    @property
    def task(self) -> int:
        return self.database.task_id("noop")

    def load(self, count: int, *, queue: str = "null", task: str = "noop", payload: str = "") -> None:
        value = payload or "json_build_object('id', n)"
        self.database.execute(
            f"insert into {JOBS} (task_id, payload, job_queue_id)"
            f" select {self.database.task_id(task)}, {value}, {queue} from generate_series(1, {count}) as n"
        )
        self.database.settle()

    def make_queues(self, count: int, *, busy: bool = False) -> None:
        locks = "now(), 'other'" if busy else "null::timestamptz, null"
        self.database.execute(f"truncate {SCHEMA}._private_job_queues restart identity")
        self.database.execute(
            f"insert into {SCHEMA}._private_job_queues (queue_name, locked_at, locked_by)"
            f" select 'queue ' || n, {locks} from generate_series(1, {count}) as n"
        )

    def make_backlog(self, shape: str) -> None:
        self.make_queues(50_000 if "50,000" in shape else 1, busy="busy" in shape)
        if SHAPES[shape]:
            series = f"generate_series(1, {BACKLOG}) as n"
            text = SHAPES[shape].format(task=self.task, unknown=self.database.task_id("unknown"), series=series)
            self.database.execute(text)

    def rates(self, peers: list[str], prepare: Callable[[str], int], time_limit: float = 60) -> None:
        measured: dict[str, list[float]] = {peer: [] for peer in peers}
        for _ in range(self.rounds):
            for peer in peers:
                measured[peer].append(self.rate(peer, prepare, time_limit=time_limit))
        ours = statistics.median(measured[OURS])
        for peer, rates in measured.items():
            rate = statistics.median(rates)
            ratio = "" if peer == OURS else f"   ours is {ours / rate:8.2f} of it"
            print(f"  {peer:16} {rate:10,.1f} jobs/s   {min(rates):,.0f} to {max(rates):,.0f}{ratio}", flush=True)

    def rate(
        self,
        peer: str,
        prepare: Callable[[str], int],
        *,
        settings: dict[str, Any] | None = None,
        time_limit: float = 60,
    ) -> float:
        self.database = self.databases[peer]
        count = prepare(peer)
        with self.worker(peer, "drain", str(count), settings=settings, time_limit=time_limit) as process:
            result = next(message for message in messages(process) if "seconds" in message)
        return float(result["jobs"]) / max(float(result["seconds"]), 1e-9)

    def latencies(self, peer: str, count: int = 200) -> list[float]:
        sent: dict[int, float] = {}
        with self.worker(peer, "serve") as process, psycopg.connect(self.database.url, autocommit=True) as adder:
            stream = messages(process)
            next(stream)
            time.sleep(1)
            for number in range(count):
                sent[number] = time.time() * 1000
                adder.execute(
                    f"select {SCHEMA}.add_job('stamp', json_build_object('number', %s::int))".encode(), [number]
                )
                message = next(stream)
                sent[number] = message["at"] - sent[number]
                time.sleep(0.02)
        return list(sent.values())[10:]

    @contextmanager
    def worker(
        self,
        peer: str,
        *arguments: str,
        settings: dict[str, Any] | None = None,
        time_limit: float = 60,
        environment: dict[str, str] | None = None,
    ) -> Iterator[subprocess.Popen[str]]:
        environment = (
            os.environ
            | (environment or {})
            | {
                "DATABASE_URL": self.database.url if peer == OURS else url_for_node(self.database.url),
                "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
                "DEBUG": "0",
                "SETTINGS": json.dumps(settings if settings is not None else SETTINGS[peer]),
                "LEFT_QUERY": f"select exists (select from {JOBS} where id > {self.ready_after}) as left",
                "TIME_LIMIT": str(time_limit),
            }
        )
        process = subprocess.Popen(
            [*command(peer), *arguments], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()

    def transactions(self) -> int:
        self.database.execute("select pg_stat_force_next_flush()")
        return int(self.database.scalar("select xact_commit from pg_stat_database where datname = current_database()"))


@cache
def systems_python() -> str | None:
    """Return the Python of the system, if it is another one and can load the packages of the current environment."""
    found = shutil.which("python3", path=os.defpath)
    if found is None or os.path.realpath(found) == os.path.realpath(sys.executable):
        return None
    asked = subprocess.run(
        [found, "-c", "import sys; print(sys.implementation.cache_tag)"], capture_output=True, text=True
    )
    return found if asked.stdout.strip() == sys.implementation.cache_tag else None


def our_command(url: str, python: str) -> AbstractContextManager[subprocess.Popen[str]]:
    parts = {f"PG{name.upper()}": str(value) for name, value in psycopg.conninfo.conninfo_to_dict(url).items()}
    environment = os.environ | parts | {"PGDATABASE": parts["PGDBNAME"], "DJANGO_SETTINGS_MODULE": "settings"}
    # An installed package has byte code.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if python != sys.executable:
        environment["PYTHONPATH"] = os.pathsep.join([str(PROJECT.parents[1]), sysconfig.get_path("platlib")])
    return started([python, "manage.py", "runworker"], cwd=PROJECT, env=environment)


@contextmanager
def started(arguments: list[str], *, cwd: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        arguments, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)


def command(peer: str) -> list[str]:
    if peer == OURS:
        return [sys.executable, "-m", "benchmarks.peers.ours"]
    return [str(node.executable()), str(node.script())]


def url_for_node(url: str) -> str:
    """Return the URL in the form of Node's driver, which takes a socket directory in the query."""
    parts = {name: str(value) for name, value in psycopg.conninfo.conninfo_to_dict(url).items()}
    host, port = parts.get("host", "127.0.0.1"), parts.get("port", "5432")
    login = parts.get("user", "postgres") + (f":{parts['password']}" if parts.get("password") else "")
    if host.startswith("/"):
        return f"postgresql://{login}@/{parts['dbname']}?host={host}&port={port}"
    return f"postgresql://{login}@{host}:{port}/{parts['dbname']}"


def messages(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    main()
