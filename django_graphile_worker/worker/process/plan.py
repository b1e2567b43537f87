"""The plan of a worker process: the options of its command line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django_graphile_worker import conf
from django_graphile_worker.registry import tasks
from django_graphile_worker.routing import Place, places_to_serve

# An environment variable of the worker under --reload, or beside runserver: the file descriptor of the pipe from which
# it reads signals, and whose end means the end of the process that started it.
RELOADER_PIPE = "GRAPHILE_WORKER_RELOADER"


def is_watched() -> bool:
    """Return True in a worker that another process watches: under --reload, or beside runserver."""
    return RELOADER_PIPE in os.environ


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of a worker's command line, as plain values.

    A plan holds no settings, only the changes to them. So the process that watches the worker under --reload can make a
    plan even while the project's settings have an error, and the supervisor can send the plan to a child, which reads
    the project's settings itself: their values may be functions.
    """

    # Settings that the command line changes, by their names in lower case.
    overrides: Mapping[str, Any] = field(default_factory=dict)
    databases: tuple[str, ...] = ()
    installations: tuple[str, ...] = ()
    # Flags to forbid in addition to the project's setting FORBIDDEN_FLAGS.
    also_forbidden: tuple[str, ...] = ()
    once: bool = False
    reload: bool = False
    with_cron: bool = True
    verbosity: int = 1
    is_colored: bool = False
    # Whether to wait for a database that does not answer at the start.
    waits: bool = True
    health_file: str = ""

    @property
    def settings(self) -> conf.Settings:
        """The project's settings with the changes of the command line."""
        return self._changed(conf.current())

    @property
    def processes(self) -> int:
        return self.settings.processes

    @property
    def metrics_port(self) -> tuple[str, int] | None:
        """Where to serve metrics. A worker that drains ends soon: the setting is for those beside it."""
        is_for_others = self.once and "metrics_port" not in self.overrides
        return None if is_for_others else self.settings.metrics_port

    def places(self) -> tuple[Place, ...]:
        """Return the places to serve. The plan decides the number of processes, not the settings of an installation."""
        processes = self.processes
        return places_to_serve(
            self.databases,
            self.installations,
            change=lambda settings: self._changed(settings).replace(processes=processes),
            arguments=("--database", "--installation"),
        )

    def needs_supervisor(self, places: Iterable[Place]) -> bool:
        """Return True if the process has to run under a supervisor.

        A process that cannot stop a run at its deadline must be replaced, as must one that reaches a limit of its own,
        and that takes a supervisor. A worker that only drains ends soon anyway, and under --reload another process
        watches the worker.
        """
        if self.processes > 1:
            return True
        if self.once or self.reload:
            return False
        return (
            self.settings.recycles
            or tasks.has_time_limits
            or any(place.settings.timeout is not None for place in places)
        )

    def _changed(self, settings: conf.Settings) -> conf.Settings:
        overrides = {**self.overrides, "processes": 1} if self.reload else self.overrides
        return settings.replace(**overrides).forbidding(self.also_forbidden)
