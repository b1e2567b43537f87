"""``Pause``: a queue, a task or a flag whose jobs wait, as a value."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from django_graphile_worker.frozen import Frozen


class PauseKind(StrEnum):
    """What is paused."""

    QUEUE = "queue"
    TASK = "task"
    FLAG = "flag"


class Pause(Frozen):
    """A queue, a task or a flag whose jobs wait."""

    kind: PauseKind
    name: str
    paused_at: datetime
    # None: until it is resumed.
    until: datetime | None = None
    reason: str = ""
    # The user or the program that paused it.
    by: str = ""

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Self:
        kind, name, paused_at, until, reason, by = row
        return cls(kind=PauseKind(kind), name=name, paused_at=paused_at, until=until, reason=reason, by=by)

    def holds(self, task_identifier: str | None, queue_name: str | None, flags: Collection[str]) -> bool:
        """Return whether a job of this task, queue and flags waits for the end of the pause."""
        if self.kind is PauseKind.FLAG:
            return self.name in flags
        return self.name == (task_identifier if self.kind is PauseKind.TASK else queue_name)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"
