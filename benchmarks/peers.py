"""The queues that run the real jobs: the settings to try, the commands of their workers, and what is left.

Their tasks are in ``real_jobs/``, which only the environment of the peers imports: the module with the name of the
queue has ``load(work, count)``, and ``prepare()`` if Django's ``migrate`` does not create all that the queue needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.database import JOBS, Database
from benchmarks.draining import Command, Left
from benchmarks.servers import RedisServer

# The kinds of work: benchmarks/real_jobs/work.py.
ORM, HTTP, HTTP_ASYNC, CPU = "orm", "http", "http_async", "cpu"
Setting = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a queue works: its database, the server of Redis if there is one, and the environment of its processes."""

    database: Database
    redis: RedisServer | None
    python: str
    variables: dict[str, str]

    def module(self, *arguments: str, **more: str) -> Command:
        return Command([self.python, "-m", *arguments], self.variables | more)


@dataclass(frozen=True, slots=True)
class Peer:
    """A queue that is measured."""

    key: str
    label: str
    # The settings among which the best is searched, for each kind of work.
    grid: Mapping[str, Sequence[Setting]]
    commands: Callable[[Place, str, Setting], list[Command]]
    # The condition on rows of the table that are left.
    unfinished: str = "true"
    # The table of the jobs, if they are in PostgreSQL: it is emptied before a measurement, and locked until all
    # processes have started.
    table: str = ""
    # The commands of Redis that return how many jobs are left, if they are in Redis.
    redis: Sequence[str] = ()

    def prepare(self, place: Place) -> None:
        place.module("benchmarks.real_jobs.client", self.key, "prepare").run()

    def load(self, place: Place, work: str, count: int) -> None:
        place.module("benchmarks.real_jobs.client", self.key, "load", work, str(count)).run()

    def left(self, place: Place) -> Left:
        """The bare loop has no queue: all is done when every job has reported its end."""

        def count() -> int:
            if self.table:
                return int(place.database.scalar(f"select count(*) from {self.table} where {self.unfinished}"))
            return sum(place.redis.ask(question) for question in self.redis) if place.redis else 0

        return Left(any=lambda: count() > 0, count=count)


def _processes(command: Command, setting: Setting) -> list[Command]:
    """Return the command once for each process, for queues whose command starts one."""
    return [command] * int(setting["processes"])


_AT_ONCE_200 = [{"processes": 1, "at once": 200}, {"processes": 2, "at once": 100}, {"processes": 4, "at once": 50}]
# Each setting of this package is also one of the bare loop, which it is compared with.
_OUR_GRID: dict[str, list[Setting]] = {
    ORM: [{"processes": 1, "at once": 10}, {"processes": 2, "at once": 5}, {"processes": 2, "at once": 10}],
    HTTP: _AT_ONCE_200,
    HTTP_ASYNC: _AT_ONCE_200,
    CPU: [{"processes": 2, "at once": 1}, {"processes": 2, "at once": 10}],
}


def _run_loop(place: Place, work: str, setting: Setting) -> list[Command]:
    arguments = [work, place.variables["COUNT"], str(setting["processes"]), str(setting["at once"])]
    return [place.module("benchmarks.real_jobs.bare", *arguments)]


# The same work without a queue, in a loop with the same number of processes and threads: what a queue adds to.
BARE = Peer("bare", "a bare loop", _OUR_GRID, _run_loop)


def _run_ours(place: Place, work: str, setting: Setting) -> list[Command]:
    options = [f"--processes={setting['processes']}", f"--concurrency={setting['at once']}"]
    return [place.module("django", "runworker", *options)]


# With its log in a file, statistics, and a receiver of a signal.
OURS = Peer("ours", "ours", _OUR_GRID, _run_ours, table=JOBS)


def _run_procrastinate(place: Place, work: str, setting: Setting) -> list[Command]:
    options = [f"--concurrency={setting['concurrency']}", "--delete-jobs=always"]
    return _processes(place.module("django", "procrastinate", "worker", *options), setting)


# One event loop for each process, ``def`` tasks in threads.
_PROCRASTINATE = Peer(
    "procrastinate",
    "Procrastinate",
    {
        ORM: [
            {"processes": 1, "concurrency": 10},
            {"processes": 2, "concurrency": 5},
            {"processes": 2, "concurrency": 10},
        ],
        HTTP: [{"processes": 1, "concurrency": 200}, {"processes": 2, "concurrency": 100}],
        HTTP_ASYNC: [{"processes": 1, "concurrency": 200}, {"processes": 2, "concurrency": 100}],
        CPU: [{"processes": 2, "concurrency": 1}, {"processes": 2, "concurrency": 2}],
    },
    _run_procrastinate,
    table="procrastinate_jobs",
    unfinished="status in ('todo', 'doing')",
)


def _run_django_tasks_db(place: Place, work: str, setting: Setting) -> list[Command]:
    options = ["--no-startup-delay", "--interval=0.05", "--verbosity=0"]
    return _processes(place.module("django", "db_worker", *options), setting)


# One job at a time in each process.
_DJANGO_TASKS_DB = Peer(
    "django_tasks_db",
    "django-tasks-db",
    {
        ORM: [{"processes": 2}, {"processes": 1}, {"processes": 4}],
        HTTP: [{"processes": 8}, {"processes": 16}],
        HTTP_ASYNC: [{"processes": 8}, {"processes": 16}],
        CPU: [{"processes": 2}, {"processes": 3}],
    },
    _run_django_tasks_db,
    table="django_tasks_database_dbtaskresult",
    unfinished="status in ('READY', 'RUNNING')",
)


def _run_pgqueuer(place: Place, work: str, setting: Setting) -> list[Command]:
    variables = {"BATCH": str(setting["batch"]), "THREADS": str(setting["threads"])}
    if "at once" in setting:
        variables["LIMIT"] = str(setting["at once"])
    return _processes(place.module("benchmarks.real_jobs.pgqueuer", **variables), setting)


# One event loop for each process; the entrypoints put blocking code into threads.
_PGQUEUER = Peer(
    "pgqueuer",
    "pgqueuer",
    {
        ORM: [
            {"processes": 1, "batch": 10, "threads": 10},
            {"processes": 2, "batch": 10, "threads": 5},
            {"processes": 2, "batch": 100, "threads": 5},
        ],
        # It demands a limit of at least twice the batch.
        HTTP: [
            {"processes": 1, "batch": 100, "at once": 200, "threads": 200},
            {"processes": 2, "batch": 50, "at once": 100, "threads": 100},
        ],
        HTTP_ASYNC: [
            {"processes": 1, "batch": 100, "at once": 200, "threads": 1},
            {"processes": 2, "batch": 50, "at once": 100, "threads": 1},
        ],
        CPU: [{"processes": 2, "batch": 1, "threads": 1}, {"processes": 2, "batch": 10, "threads": 1}],
    },
    _run_pgqueuer,
    table="pgqueuer",
)


def _run_celery(place: Place, work: str, setting: Setting) -> list[Command]:
    options = [
        f"--pool={setting['pool']}",
        f"--concurrency={setting['concurrency']}",
        f"--prefetch-multiplier={setting['prefetch']}",
        "--loglevel=INFO",
    ]
    return [place.module("celery", "--app=benchmarks.real_jobs.celery", "worker", *options)]


# Processes or threads; the broker keeps jobs in memory, and a job is taken off before it runs.
_CELERY = Peer(
    "celery",
    "Celery with Redis",
    {
        ORM: [
            {"pool": "prefork", "concurrency": 2, "prefetch": 4},
            {"pool": "prefork", "concurrency": 4, "prefetch": 100},
            {"pool": "threads", "concurrency": 10, "prefetch": 4},
        ],
        HTTP: [
            {"pool": "threads", "concurrency": 200, "prefetch": 1},
            {"pool": "threads", "concurrency": 200, "prefetch": 4},
        ],
        HTTP_ASYNC: [{"pool": "threads", "concurrency": 200, "prefetch": 4}],
        CPU: [
            {"pool": "prefork", "concurrency": 2, "prefetch": 1},
            {"pool": "prefork", "concurrency": 2, "prefetch": 4},
        ],
    },
    _run_celery,
    redis=["LLEN celery", "HLEN unacked"],
)


def _run_dramatiq(place: Place, work: str, setting: Setting) -> list[Command]:
    options = [f"--processes={setting['processes']}", f"--threads={setting['threads']}"]
    return [place.module("dramatiq", "benchmarks.real_jobs.dramatiq", *options)]


# Threads in processes; a job is acknowledged after it ran, and the hash has it until then.
_DRAMATIQ = Peer(
    "dramatiq",
    "dramatiq with Redis",
    {
        ORM: [{"processes": 1, "threads": 8}, {"processes": 2, "threads": 4}, {"processes": 2, "threads": 8}],
        HTTP: [{"processes": 1, "threads": 200}, {"processes": 2, "threads": 100}],
        HTTP_ASYNC: [{"processes": 1, "threads": 200}, {"processes": 2, "threads": 100}],
        CPU: [{"processes": 2, "threads": 1}, {"processes": 2, "threads": 8}],
    },
    _run_dramatiq,
    redis=["HLEN dramatiq:default.msgs"],
)

OTHERS = (_PROCRASTINATE, _DJANGO_TASKS_DB, _PGQUEUER, _CELERY, _DRAMATIQ)
