"""The protocol of the queues that run the real jobs.

On this side, a :class:`Peer` has the settings to try, the commands that start its workers, and the question for what is
left. On the other side, in the environment of the peers, the module ``benchmarks.peers.<key>.tasks`` has
``load(work, count)``, and ``prepare()`` if Django's ``migrate`` does not create all that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.commands import Command, run
from benchmarks.database import Database
from benchmarks.draining import Left
from benchmarks.redis_server import RedisServer

# The kinds of work: benchmarks/real_jobs/shop/work.py.
ORM, HTTP, HTTP_ASYNC, CPU = "orm", "http", "http_async", "cpu"
Setting = dict[str, Any]


def label_of(setting: Setting) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting.items())


@dataclass(frozen=True, slots=True)
class Place:
    """Where a queue works: its database, the server of Redis if there is one, and the environment of its processes."""

    database: Database
    redis: RedisServer | None
    python: str
    variables: dict[str, str]

    def command(self, *arguments: str) -> Command:
        return Command(arguments, self.variables)

    def module(self, *arguments: str) -> Command:
        return self.command(self.python, "-m", *arguments)


@dataclass(frozen=True, slots=True)
class Peer:
    """A queue that is measured."""

    key: str
    label: str
    # The settings among which the best is searched, for each kind of work.
    grid: Mapping[str, Sequence[Setting]]
    commands: Callable[[Place, str, Setting], list[Command]]
    left: Callable[[Place], Left]
    needs_redis: bool = False
    # The table of the jobs, if they are in PostgreSQL: it is emptied before a measurement, and locked until all
    # processes have started.
    table: str = ""

    def prepare(self, place: Place) -> None:
        run(place.module("benchmarks.peers.client", self.key, "prepare"))

    def load(self, place: Place, work: str, count: int) -> None:
        run(place.module("benchmarks.peers.client", self.key, "load", work, str(count)))


def left_by_sql(query: str) -> Callable[[Place], Left]:
    """Return how to count what is left with a query."""

    def left(place: Place) -> Left:
        def count() -> int:
            return int(place.database.scalar(query))

        return Left(any=lambda: count() > 0, count=count)

    return left


def left_in_redis(*questions: str) -> Callable[[Place], Left]:
    """Return how to count what is left with commands of Redis that return numbers."""

    def left(place: Place) -> Left:
        def count() -> int:
            assert place.redis is not None
            return sum(place.redis.ask(question) for question in questions)

        return Left(any=lambda: count() > 0, count=count)

    return left


def processes_of(command: Command, setting: Setting) -> list[Command]:
    """Return the same command once for each process, for queues whose command starts one."""
    return [command] * int(setting.get("processes", 1))
