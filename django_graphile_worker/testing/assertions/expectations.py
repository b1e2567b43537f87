"""What a test expects of a job, and how a job differs from it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pprint import pformat
from typing import Any, TypedDict

from django_graphile_worker import registry
from django_graphile_worker.api.times import aware
from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.jobs import Job
from django_graphile_worker.text import quoted

# How far a run_at may be from the delay that a test expects. The delay is counted from the time of the last change.
TOLERANCE = timedelta(seconds=1)
MOST_SHOWN = 5


class JobValues(TypedDict, total=False):
    """The values of a job that a test can expect. The others may be anything."""

    payload: Any
    queue_name: str | None
    run_at: datetime | timedelta
    priority: int
    job_key: str | None
    max_attempts: int
    flags: Iterable[str]


class Expectation:
    """A task, or any task, and the values that its jobs must have."""

    def __init__(self, task: Any, values: Mapping[str, Any]) -> None:
        unknown = sorted(set(values) - set(JobValues.__annotations__))
        if unknown:
            known = ", ".join(JobValues.__annotations__)
            raise InvalidTypeError(f"expected values of a job ({known}), got {unknown[0]!r}.")
        for name, value in values.items():
            _check_type(name, value)
        self.identifier = None if task is None else identifier_of(task)
        self._values = dict(values)
        if isinstance(run_at := self._values.get("run_at"), datetime):
            self._values["run_at"] = aware(run_at)

    def __str__(self) -> str:
        task = "any task" if self.identifier is None else repr(self.identifier)
        values = ", ".join(f"{name}={value!r}" for name, value in self._values.items())
        return f"{task} with {values}" if values else task

    def concerns(self, job: Job) -> bool:
        return self.identifier is None or job.task_identifier == self.identifier

    def is_met(self, job: Job) -> bool:
        return self.concerns(job) and all(_fits(name, value, job) for name, value in self._values.items())

    def differences(self, job: Job) -> str:
        """Return how a job differs, a line or more for each value."""
        parts = [f"job {job.id}, {job.task_identifier}:"]
        for name, expected in self._values.items():
            if not _fits(name, expected, job):
                parts.append(_difference(name, expected, _actual(name, job, expected)))
        return "\n".join(parts)


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "queue_name": (_is_text, "a string or None"),
    "job_key": (_is_text, "a string or None"),
    "run_at": (lambda value: isinstance(value, datetime | timedelta), "a datetime, or a timedelta from now"),
    "priority": (_is_number, "a whole number"),
    "max_attempts": (_is_number, "a whole number"),
    "flags": (
        lambda value: (value is None or isinstance(value, Iterable)) and not isinstance(value, str),
        "a set of strings",
    ),
}


def _check_type(name: str, value: Any) -> None:
    """Raise for a value that no job has: compared with it, every job differs."""
    if name not in _CHECKS:
        return
    is_right, expected = _CHECKS[name]
    if not is_right(value):
        raise InvalidTypeError(f"{name}: expected {expected}, got {quoted(value)} ({type(value).__name__}).")


def identifier_of(task: Any) -> str:
    """Return the task identifier of a name, of a task, or of a task of Django Tasks."""
    if isinstance(task, str):
        return task
    if isinstance(identifier := getattr(task, "identifier", None), str):
        return identifier
    if isinstance(path := getattr(task, "module_path", None), str):
        label = getattr(task, "queue_name", "default")
        return path if label == "default" else f"{path}@{label}"
    raise InvalidTypeError(f"task: expected a task or a task identifier (str), got {task!r}.")


def hint_for(identifier: str | None) -> str:
    """Return a sentence about a task identifier that no task has, or nothing."""
    if identifier is None or identifier in registry.tasks:
        return ""
    # Late import: only a mistake needs suggestions.
    from django_graphile_worker.suggestions import did_you_mean

    hint = did_you_mean(identifier, registry.tasks.identifiers())
    return f" No task has this identifier. {hint}" if hint else ""


def _fits(name: str, expected: Any, job: Job) -> bool:
    actual = _actual(name, job, expected)
    if name == "payload":
        return is_part(expected, actual)
    if name == "flags":
        return bool(frozenset(expected or ()) == actual)
    if name == "run_at" and isinstance(expected, timedelta):
        return bool(abs(actual - expected) <= TOLERANCE)
    return bool(expected == actual)


def _actual(name: str, job: Job, expected: Any) -> Any:
    if name == "job_key":
        return job.key
    if name == "run_at" and isinstance(expected, timedelta):
        return job.run_at - job.updated_at
    return getattr(job, name)


def is_part(expected: Any, actual: Any) -> bool:
    """Return whether a payload has all that is expected: a dict may have more keys, at every level."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return all(key in actual and is_part(value, actual[key]) for key, value in expected.items())
    if isinstance(expected, list | tuple) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(is_part, expected, actual))
    return bool(({} if expected is None else expected) == actual) or bool(expected == actual)


def _difference(name: str, expected: Any, actual: Any) -> str:
    if not isinstance(expected, dict | list | tuple):
        return f"  {name}: expected {expected!r}, got {actual!r}"
    lines = difflib.ndiff(pformat(expected).splitlines(), pformat(actual).splitlines())
    return "\n".join([f"  {name}, expected (-) and got (+):", *(f"    {line.rstrip()}" for line in lines)])


def overview(jobs: Sequence[Job], *, of_block: bool = False) -> str:
    """Return how many jobs of which tasks there are, in the queue or among those that a block has added."""
    if not jobs:
        return "The block added no job." if of_block else "The queue is empty."
    counts = {name: sum(job.task_identifier == name for job in jobs) for name in {j.task_identifier: 1 for j in jobs}}
    place = "Added by the block" if of_block else "In the queue"
    return f"{place}: {', '.join(f'{count} of {name}' for name, count in counts.items())}."


def shown(jobs: Sequence[Job], describe: Any) -> str:
    """Return the descriptions of the first jobs, and how many more there are."""
    more = len(jobs) - MOST_SHOWN
    lines = [describe(job) for job in jobs[:MOST_SHOWN]]
    return "\n".join([*lines, f"and {more} more"] if more > 0 else lines)
