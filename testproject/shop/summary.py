"""The outcomes of the jobs of the demo, from the signals of the worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.dispatch import Signal

from django_graphile_worker import signals

COLUMNS = ("job", "task", "queue", "attempts", "outcome")


@dataclass
class Summary:
    """The last outcome of each job."""

    outcomes: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record the outcomes of jobs while the block runs."""
        receivers: dict[Signal, Callable[..., None]] = {
            signals.job_succeeded: self._succeeded,
            signals.job_failed: self._failed,
            signals.job_permanently_failed: self._permanently_failed,
        }
        for event, receiver in receivers.items():
            event.connect(receiver)
        try:
            yield
        finally:
            for event, receiver in receivers.items():
                event.disconnect(receiver)

    def _succeeded(self, job: Any, **kwargs: Any) -> None:
        self._note(job, "succeeded" if job.attempts == 1 else f"succeeded at attempt {job.attempts}")

    def _failed(self, job: Any, error: BaseException, **kwargs: Any) -> None:
        self._note(job, f"failed, will be retried: {error}")

    def _permanently_failed(self, job: Any, error: BaseException, **kwargs: Any) -> None:
        self._note(job, f"permanently failed: {error}")

    def _note(self, job: Any, outcome: str) -> None:
        row = (str(job.id), job.task_identifier, job.queue_name or "", f"{job.attempts} of {job.max_attempts}", outcome)
        self.outcomes[job.id] = row

    def lines(self) -> list[str]:
        """Return a table with one line for each job."""
        return table(COLUMNS, [row for _, row in sorted(self.outcomes.items())])


def table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Align rows under their columns; the width of the last column is not limited."""
    widths = [max(len(row[place]) for row in (columns, *rows)) for place in range(len(columns) - 1)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in (columns, tuple("-" * len(column) for column in columns), *rows)
    ]
