"""The health of a process: reported to its supervisor or to systemd, and written to the file of ``--health-file``.

A process is healthy while its threads can run and no part of its workers has died, also while the database does not
answer: the worker waits for the database by itself, and a restart would only interrupt the jobs that run.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from time import time

from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.worker.process.supervisor import ENDS, HEALTHY, READY, report_interval, send
from django_graphile_worker.worker.process.systemd import Systemd
from django_graphile_worker.worker.runner import Runner
from django_graphile_worker.worker.service import Service

INTERVAL_UNTIL_READY = 0.5
# O_NOFOLLOW does not exist on Windows.
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)

logger = logging.getLogger("django_graphile_worker.worker")


class Health(Service):
    """A service that reports every few seconds that no part of the workers has died."""

    name = "health"

    def __init__(
        self,
        path: Path | None,
        runners: Sequence[Runner],
        supervisor: Connection | None = None,
        systemd: Systemd | None = None,
    ) -> None:
        super().__init__(on_trouble=self._log_trouble)
        self._path = path
        self._runners = runners
        self._supervisor = supervisor
        self._systemd = systemd or Systemd()
        self._was_ready = False
        # What other workers do with a process that is silent for so long: they recover its jobs.
        self._valid_seconds = max(runner.settings.worker_timeout for runner in runners)
        self._has_logged = False

    def step(self) -> float:
        seconds = report_interval(self._valid_seconds)
        # Another process takes the place of a process that retires, and writes the file.
        if any(runner.worker.dead() or runner.is_retiring for runner in self._runners):
            return seconds
        is_ready = self._is_ready
        if self._supervisor is not None:
            send(self._supervisor, HEALTHY)
            if is_ready and not self._was_ready:
                send(self._supervisor, READY)
        self._was_ready = self._was_ready or is_ready
        self._systemd.report(is_ready=is_ready, status=self._status() if is_ready else "Waiting for the database.")
        self.write()
        return min(seconds, self._systemd.interval, seconds if is_ready else INTERVAL_UNTIL_READY)

    def _status(self) -> str:
        running = sum(runner.worker.pool.running() for runner in self._runners)
        return f"Slots in use: {running} of {sum(runner.settings.concurrency for runner in self._runners)}."

    @property
    def _is_ready(self) -> bool:
        return all(runner.worker.heartbeat.holds_lease for runner in self._runners)

    def write(self) -> None:
        """Replace the file in one step: a reader never sees half of it."""
        if self._path is None:
            return
        content = {
            "pid": os.getpid(),
            "worker_ids": [runner.worker.worker_id for runner in self._runners],
            "is_ready": self._is_ready,
            "written_at": time(),
            "valid_seconds": self._valid_seconds,
        }
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        # Others may write to the directory. A draft may be that of a process that died, or a link to another file.
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, NEW_FILE, 0o666), "w", encoding="utf-8") as file:
            file.write(json.dumps(content))
        draft.replace(self._path)

    def close(self) -> None:
        if self._supervisor is not None:
            send(self._supervisor, ENDS)
        if self._path is None:
            return
        with suppress(OSError, ValueError):
            if json.loads(self._path.read_text(encoding="utf-8"))["pid"] == os.getpid():
                self._path.unlink()

    def _log_trouble(self, action: str, error: BaseException, retry_in: float) -> None:
        if not self._has_logged:
            logger.warning("the health file %s cannot be written: %s", self._path, error)
        self._has_logged = True


@contextmanager
def reported(
    path: str, runners: Sequence[Runner], supervisor: Connection | None = None, systemd: Systemd | None = None
) -> Iterator[None]:
    """Report the health inside the block, and remove the file at the end; do nothing if nobody wants to know.

    Raises GraphileWorkerError when the file cannot be written.
    """
    if not path and supervisor is None and not systemd:
        yield
        return
    health = Health(Path(path) if path else None, runners, supervisor, systemd)
    try:
        health.write()
    except OSError as error:
        raise GraphileWorkerError(
            f"--health-file: expected a file that can be written, got {path!r}: {error.strerror or error}."
        ) from error
    health.start()
    try:
        yield
    finally:
        health.stop()
        health.join(1.0)
