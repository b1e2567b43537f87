"""What a worker's command line asks for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from django_graphile_worker import conf
from django_graphile_worker.frozen import Frozen
from django_graphile_worker.routing import Place, places_to_serve

# Set for the worker under --reload: the pipe on which it is told of signals.
RELOADER_PIPE = "GRAPHILE_WORKER_RELOADER"


class Plan(Frozen):
    """What was asked for on the command line."""

    settings: conf.Settings
    # What the command line changes of them, for installations that have settings of their own.
    overrides: Mapping[str, Any] = MappingProxyType({})
    databases: tuple[str, ...] = ()
    installations: tuple[str, ...] = ()
    # In the settings already, beside what the project forbids.
    also_forbidden: tuple[str, ...] = ()
    once: bool = False
    with_cron: bool = True
    verbosity: int = 1
    is_colored: bool = False
    # Wait for a database that does not answer at the start?
    waits: bool = True
    health_file: str = ""

    def places(self) -> tuple[Place, ...]:
        """Where to work, with the settings there."""
        return places_to_serve(
            self.databases,
            self.installations,
            change=lambda settings: settings.replace(**self.overrides).forbidding(self.also_forbidden),
            arguments=("--database", "--installation"),
        )
