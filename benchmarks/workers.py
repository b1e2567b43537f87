"""The workers that run trivial jobs: this package on ``trivial_jobs/django``, graphile-worker on ``trivial_jobs/node``.

graphile-worker comes from npm, and is installed once into a folder of the checkout that git ignores.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from benchmarks import CHECKOUT
from benchmarks.database import Database, scratch_database
from benchmarks.draining import Command, drain
from benchmarks.servers import Server
from benchmarks.session import Figures

SILENT = "--no-log-success"
PROJECTS = Path(__file__).with_name("trivial_jobs")
NODE_HOME = CHECKOUT / ".node"
NODE_PACKAGES = ("node@24", "graphile-worker@0.18.0")
NODE_DEFAULTS: dict[str, Any] = {"concurrentJobs": 10, "maxPoolSize": 12}


@dataclass(frozen=True, slots=True)
class Stage:
    """A database for each of the two, with a schema that it created itself; ``theirs`` is None without npm."""

    ours: Database
    theirs: Database | None
    server: Server

    def our_worker(self, *options: str, processes: int = 1, python: str = sys.executable, **variables: str) -> Command:
        """Return ``manage.py runworker``, as a user types it."""
        more = [f"--processes={processes}"] if processes > 1 else []
        return _manage(self.ours.url, "runworker", *options, *more, python=python, **variables)

    def node_worker(self, settings: dict[str, Any], *, logs: bool = False) -> Command:
        """Return graphile-worker as a library, with any settings."""
        assert self.theirs is not None
        variables = {"SETTINGS": json.dumps(settings), "LOG": "1" if logs else ""}
        return _node_script(self.theirs.url, "work", **variables)

    def node_command(self) -> Command:
        """Return the command of graphile-worker, as a user types it."""
        assert self.theirs is not None
        script = NODE_HOME / "node_modules" / "graphile-worker" / "dist" / "cli.js"
        arguments = [str(_node()), str(script), "-c", url_for_node(self.theirs.url)]
        return Command(arguments, directory=PROJECTS / "node" / "project")

    def drain_ours(self, count: int, *options: str, processes: int = 1, python: str = sys.executable) -> Figures:
        """Measure trivial jobs without a queue."""
        command = self.our_worker(*options, processes=processes, python=python)
        return self._drain(self.ours, [command], count, processes)

    def drain_node(self, count: int, settings: dict[str, Any], *, processes: int = 1, logs: bool = False) -> Figures:
        assert self.theirs is not None
        return self._drain(self.theirs, [self.node_worker(settings, logs=logs)] * processes, count, processes)

    def _drain(self, database: Database, commands: list[Command], count: int, processes: int) -> Figures:
        database.empty()
        database.load(count)
        with database.gate() as open_gate:
            return drain(
                commands,
                total=count,
                left=database.left(),
                server=self.server,
                processes=processes,
                # With few jobs, a report of each process at a thousand would come after the end.
                report_every=max(1, min(1000, count // processes // 20)),
                time_limit=120,
                open_gate=open_gate,
            )


@contextmanager
def stage(*, with_node: bool = True) -> Iterator[Stage]:
    """Create the databases, and drop them after the block."""
    has_node = with_node and _node() is not None
    if with_node and not has_node:
        print("npm is not installed, so graphile-worker is not measured, and there are no ratios.")
    with ExitStack() as stack:
        own = stack.enter_context(scratch_database(migrate))
        theirs = stack.enter_context(scratch_database(_migrate_node, "_node")) if has_node else None
        server = Server(own.url)
        stack.callback(server.close)
        yield Stage(own, theirs, server)


def migrate(url: str) -> None:
    _manage(url, "migrate", "-v0", "graphile_worker").run()


def _manage(url: str, *arguments: str, python: str = sys.executable, **variables: str) -> Command:
    parts = {f"PG{name.upper()}": str(value) for name, value in conninfo_to_dict(url).items()}
    environment = parts | {"PGDATABASE": parts["PGDBNAME"], "DJANGO_SETTINGS_MODULE": "settings"} | variables
    if python != sys.executable:
        environment["PYTHONPATH"] = os.pathsep.join([str(CHECKOUT), sysconfig.get_path("platlib")])
    return Command([python, "manage.py", *arguments], environment, PROJECTS / "django")


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


def node_grid() -> dict[str, dict[str, Any]]:
    """Return the settings of graphile-worker among which the best is searched, by their labels."""
    return {
        f"{jobs} at once, local queue {size:,}, batch delay {delay} ms": {
            "concurrentJobs": jobs,
            "maxPoolSize": jobs + 2,
            "localQueue": {"size": size, "refetchDelay": {"durationMs": 10}},
            "completeJobBatchDelay": delay,
            "failJobBatchDelay": delay,
        }
        for jobs, size, delay in product((10, 24), (500, 2000), (0, 10))
    }


@cache
def _node() -> Path | None:
    """Return the path of a Node that runs graphile-worker 0.18, or None if npm is missing."""
    program = NODE_HOME / "node_modules" / ".bin" / "node"
    package = NODE_HOME / "node_modules" / "graphile-worker"
    if not (program.exists() and package.exists()):
        if shutil.which("npm") is None:
            return None
        NODE_HOME.mkdir(exist_ok=True)
        options = ["--silent", "--no-fund", "--no-audit", "--prefix", str(NODE_HOME)]
        subprocess.run(["npm", "install", *options, *NODE_PACKAGES], check=True, capture_output=True)
    return program if program.exists() else None


def _migrate_node(url: str) -> None:
    _node_script(url, "migrate").run()


def _node_script(url: str, *arguments: str, **variables: str) -> Command:
    # A script imports packages from the folder that it is in.
    script = NODE_HOME / "worker.mjs"
    script.write_text((PROJECTS / "node" / script.name).read_text())
    return Command([str(_node()), str(script), *arguments], variables | {"DATABASE_URL": url_for_node(url)})


def url_for_node(url: str) -> str:
    """Return the URL in the form of Node's driver, which takes a socket directory in the query."""
    parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    host, port = parts.get("host", "127.0.0.1"), parts.get("port", "5432")
    login = parts.get("user", "postgres") + (f":{parts['password']}" if parts.get("password") else "")
    if host.startswith("/"):
        return f"postgresql://{login}@/{parts['dbname']}?host={host}&port={port}"
    return f"postgresql://{login}@{host}:{port}/{parts['dbname']}"
