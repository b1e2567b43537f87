"""How graphile-worker is started: as a library with any settings, and by its command."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from benchmarks.commands import Command, run
from benchmarks.peers.node import installation

DEFAULTS: dict[str, Any] = {"concurrentJobs": 10, "maxPoolSize": 12}
REFETCH_DELAY = {"durationMs": 10}


def grid() -> dict[str, dict[str, Any]]:
    """Return the settings among which the best is searched, by their labels."""
    cells = product((10, 24), (500, 2000), (0, 10))
    return {_label(*cell): _tuned(*cell) for cell in cells}


def _label(jobs: int, size: int, delay: int) -> str:
    return f"{jobs} at once, local queue {size:,}, batch delay {delay} ms"


def _tuned(jobs: int, size: int, delay: int) -> dict[str, Any]:
    return {
        "concurrentJobs": jobs,
        "maxPoolSize": jobs + 2,
        "localQueue": {"size": size, "refetchDelay": REFETCH_DELAY},
        "completeJobBatchDelay": delay,
        "failJobBatchDelay": delay,
    }


def worker(url: str, settings: dict[str, Any], *, logs: bool = False) -> Command:
    arguments = [str(installation.executable()), str(installation.script()), "work"]
    variables = {"DATABASE_URL": url_for_node(url), "SETTINGS": json.dumps(settings), "LOG": "1" if logs else ""}
    return Command(arguments, variables)


def cli(url: str) -> Command:
    """Return its command, as a user types it."""
    return Command([*installation.command_line(), "-c", url_for_node(url)], directory=installation.PROJECT)


def migrate(url: str) -> None:
    arguments = [str(installation.executable()), str(installation.script()), "migrate"]
    run(Command(arguments, {"DATABASE_URL": url_for_node(url)}))


def url_for_node(url: str) -> str:
    """Return the URL in the form of Node's driver, which takes a socket directory in the query."""
    parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    host, port = parts.get("host", "127.0.0.1"), parts.get("port", "5432")
    login = parts.get("user", "postgres") + (f":{parts['password']}" if parts.get("password") else "")
    if host.startswith("/"):
        return f"postgresql://{login}@/{parts['dbname']}?host={host}&port={port}"
    return f"postgresql://{login}@{host}:{port}/{parts['dbname']}"
