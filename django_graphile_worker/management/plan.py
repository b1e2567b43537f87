"""What a worker's command line asks for."""

from __future__ import annotations

from django_graphile_worker import conf
from django_graphile_worker.values import Value

# Set for the worker under --reload: the pipe on which it is told of signals.
RELOADER_PIPE = "GRAPHILE_WORKER_RELOADER"


class Plan(Value):
    """What was asked for on the command line."""

    settings: conf.Settings
    databases: tuple[str, ...] = ()
    # In the settings already, beside what the project forbids.
    also_forbidden: tuple[str, ...] = ()
    once: bool = False
    with_cron: bool = True
    verbosity: int = 1
    is_colored: bool = False
    # Wait for a database that does not answer at the start?
    waits: bool = True
    health_file: str = ""
