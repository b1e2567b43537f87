"""``runworker --health-file``: a file that is rewritten while the process is healthy, for a container's probe.

A separate thread writes the file, also while the database does not answer: the worker waits for the database by itself,
and a restart would only interrupt the jobs that run.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time

from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.worker.runner import Runner
from django_graphile_worker.worker.service import Service

INTERVAL = 5.0
INTERVAL_UNTIL_READY = 0.5
# O_NOFOLLOW does not exist on Windows.
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)

logger = logging.getLogger("django_graphile_worker.worker")


class HealthFile(Service):
    """A service that rewrites the file every few seconds while no part of the worker has died."""

    name = "health-file"

    def __init__(self, path: Path, runners: Sequence[Runner]) -> None:
        super().__init__(on_trouble=self._log_trouble)
        self._path = path
        self._runners = runners
        self._has_logged = False

    def step(self) -> float:
        # Another process takes the place of a process that retires, and writes the file.
        if any(runner.parts.dead() or runner.is_retiring for runner in self._runners):
            return INTERVAL
        self.write()
        return INTERVAL if self._is_ready else INTERVAL_UNTIL_READY

    @property
    def _is_ready(self) -> bool:
        return all(runner.parts.heartbeat.holds_lease for runner in self._runners)

    def write(self) -> None:
        """Replace the file in one step: a reader never sees half of it."""
        content = {
            "pid": os.getpid(),
            "worker_ids": [runner.parts.worker_id for runner in self._runners],
            "is_ready": self._is_ready,
            "written_at": time(),
            "valid_seconds": max(runner.settings.worker_timeout for runner in self._runners),
        }
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        # Others may write to the directory. A draft may be that of a process that died, or a link to another file.
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, NEW_FILE, 0o666), "w", encoding="utf-8") as file:
            file.write(json.dumps(content))
        draft.replace(self._path)

    def close(self) -> None:
        with suppress(OSError, ValueError):
            if json.loads(self._path.read_text(encoding="utf-8"))["pid"] == os.getpid():
                self._path.unlink()

    def _log_trouble(self, action: str, error: BaseException, retry_in: float) -> None:
        if not self._has_logged:
            logger.warning("the health file %s cannot be written: %s", self._path, error)
        self._has_logged = True


@contextmanager
def kept_up(path: Path | None, runners: Sequence[Runner]) -> Iterator[None]:
    """Rewrite the file inside the block, and remove it at the end.

    Raises GraphileWorkerError when the file cannot be written.
    """
    if path is None:
        yield
        return
    health = HealthFile(path, runners)
    try:
        health.write()
    except OSError as error:
        raise GraphileWorkerError(
            f"--health-file: expected a file that can be written, got {str(path)!r}: {error.strerror or error}."
        ) from error
    health.start()
    try:
        yield
    finally:
        health.stop()
        health.join(1.0)
