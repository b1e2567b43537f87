"""The call of a Django task as the payload of a job, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django_graphile_worker.backend.arguments import normalized
from django_graphile_worker.backend.compat import DEFAULT_TASK_BACKEND_ALIAS, Task
from django_graphile_worker.exceptions import PayloadError


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of a call, and how its task differed from the defaults of the framework.

    A payload has the keys ``args`` and ``kwargs``, and ``using`` if the task had a priority, a time or another backend:
    a result tells them long after the job has gone.
    """

    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    priority: int = 0
    # A time, or a timedelta from the moment at which the job was added.
    run_after: datetime | timedelta | None = None
    backend: str = DEFAULT_TASK_BACKEND_ALIAS

    @classmethod
    def of(cls, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, backend: str) -> Call:
        """Return a call with arguments that JSON can hold; raise PayloadError with the place of any other."""
        return cls(
            args=normalized(args, "args"),
            kwargs=normalized(kwargs, "kwargs"),
            priority=int(task.priority),
            run_after=task.run_after,
            backend=backend,
        )

    @classmethod
    def from_payload(cls, payload: Any) -> Call:
        """Return the call of a payload; raise PayloadError, which is final, if it is no call of a Django task."""
        payload = {} if payload is None else payload
        args = payload.get("args", []) if isinstance(payload, dict) else None
        kwargs = payload.get("kwargs", {}) if isinstance(payload, dict) else None
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            error = PayloadError('expected {"args": [...], "kwargs": {...}}, the arguments of a Django task, at $.')
            error.is_misfit = True
            raise error
        using = payload.get("using")
        return cls(args, kwargs, **(_from_json(using) if isinstance(using, dict) else {}))

    def to_payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = {"args": self.args, "kwargs": self.kwargs}
        using = self._to_json()
        return payload | {"using": using} if using else payload

    def run_after_of(self, added_at: datetime | None) -> datetime | None:
        """Return the time before which the job does not run, if it was added at ``added_at``."""
        if not isinstance(self.run_after, timedelta):
            return self.run_after
        return None if added_at is None else added_at + self.run_after

    def _to_json(self) -> dict[str, Any]:
        using: dict[str, Any] = {}
        if self.priority:
            using["priority"] = self.priority
        if self.run_after is not None:
            time = self.run_after
            using["run_after"] = time.total_seconds() if isinstance(time, timedelta) else time.isoformat()
        if self.backend != DEFAULT_TASK_BACKEND_ALIAS:
            using["backend"] = self.backend
        return using


def _from_json(using: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a call. The payload may come from anywhere, so a value of another kind is left out."""
    found: dict[str, Any] = {}
    if isinstance(using.get("priority"), int):
        found["priority"] = using["priority"]
    if isinstance(using.get("backend"), str):
        found["backend"] = using["backend"]
    run_after = using.get("run_after")
    try:
        if isinstance(run_after, str):
            found["run_after"] = datetime.fromisoformat(run_after)
        elif isinstance(run_after, int | float):
            found["run_after"] = timedelta(seconds=run_after)
    except (ValueError, OverflowError):
        pass
    return found
