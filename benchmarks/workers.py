"""The databases and commands of the benchmarks that compare this package with graphile-worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks import jobs
from benchmarks.commands import Command
from benchmarks.database import Database, scratch_database
from benchmarks.draining import Drained, drain
from benchmarks.peers.node import commands as node
from benchmarks.peers.node import installation
from benchmarks.peers.ours import commands as ours
from benchmarks.server import Server


@dataclass(frozen=True, slots=True)
class Stage:
    """A database for each of the two, with a schema that it created itself; ``theirs`` is None without npm."""

    ours: Database
    theirs: Database | None
    server: Server

    def our_worker(self, *options: str, processes: int = 1, **variables: str) -> Command:
        more = [f"--processes={processes}"] if processes > 1 else []
        return ours.runworker(self.ours.url, *options, *more, **variables)

    def node_worker(self, settings: dict[str, Any], *, logs: bool = False) -> Command:
        assert self.theirs is not None
        return node.worker(self.theirs.url, settings, logs=logs)

    def drain_ours(
        self, count: int, *options: str, processes: int = 1, task: str = "noop", **variables: str
    ) -> Drained:
        """Measure trivial jobs without a queue."""
        self.ours.empty()
        jobs.load(self.ours, count, task=task)
        command = self.our_worker(*options, processes=processes, **variables)
        return self._drain(self.ours, [command], count, processes)

    def drain_node(self, count: int, settings: dict[str, Any], *, processes: int = 1, logs: bool = False) -> Drained:
        assert self.theirs is not None
        self.theirs.empty()
        jobs.load(self.theirs, count)
        return self._drain(self.theirs, [self.node_worker(settings, logs=logs)] * processes, count, processes)

    def _drain(self, database: Database, commands: list[Command], count: int, processes: int) -> Drained:
        left = jobs.left_in(database)
        # With few jobs, a report of each process at a thousand would come after the end.
        every = max(1, min(1000, count // processes // 20))
        with jobs.gate(database) as open_gate:
            return drain(
                commands,
                total=count,
                left=left,
                server=self.server,
                processes=processes,
                report_every=every,
                time_limit=120,
                open_gate=open_gate,
            )


@contextmanager
def stage(*, with_node: bool = True) -> Iterator[Stage]:
    """Create the databases, and drop them after the block."""
    has_node = with_node and installation.executable() is not None
    if with_node and not has_node:
        print("npm is not installed, so graphile-worker is not measured, and there are no ratios.")
    with ExitStack() as stack:
        own = stack.enter_context(scratch_database())
        theirs = stack.enter_context(scratch_database(node.migrate, "_node")) if has_node else None
        server = Server(own.url)
        stack.callback(server.close)
        yield Stage(own, theirs, server)
