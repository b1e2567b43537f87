"""What became of the demo's jobs, as told by the worker's signals."""

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
    """The last that was heard of each job."""

    outcomes: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Note down how jobs end, as long as the block runs."""
        heard: dict[Signal, Callable[..., None]] = {
            signals.job_succeeded: self._succeeded,
            signals.job_failed: self._failed,
            signals.job_permanently_failed: self._permanently_failed,
        }
        for event, receiver in heard.items():
            event.connect(receiver)
        try:
            yield
        finally:
            for event, receiver in heard.items():
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
        """A table, one line for each job."""
        return table(COLUMNS, [row for _, row in sorted(self.outcomes.items())])


def table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Align rows under their columns; the last column is as wide as it likes."""
    widths = [max(len(row[place]) for row in (columns, *rows)) for place in range(len(columns) - 1)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in (columns, tuple("-" * len(column) for column in columns), *rows)
    ]
