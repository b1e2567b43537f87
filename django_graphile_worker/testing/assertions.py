"""What a test asserts about the jobs in the queue, or about those that a block has added."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pprint import pformat
from types import TracebackType
from typing import Any, Unpack

from asgiref.sync import sync_to_async

from django_graphile_worker import registry
from django_graphile_worker.api.connection import async_variant, aware, open_queue
from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.job_options import OPTIONS, JobOption, SpecOptions
from django_graphile_worker.jobs import Job
from django_graphile_worker.sql import jobs as sql_jobs
from django_graphile_worker.text import did_you_mean

# How far a time may be from the delay that a test expects. A run_at is counted from the time of the last change.
TOLERANCE = timedelta(seconds=1)
MAX_SHOWN = 5
# The options that a job has as attributes, by the names that add_job() has for them.
_KNOWN_OPTIONS = {name: option for name, option in OPTIONS.items() if option.attribute is not None}


class JobValues(SpecOptions, total=False):
    """The values of a job that a test can expect. The others may be anything."""

    payload: Any


def jobs(task: Any = None, *, using: str | None = None, installation: str | None = None) -> list[Job]:
    """Return the jobs in the queue, of a task or of all tasks, in the order in which they were added."""
    identifier = None if task is None else identifier_of(task)
    with open_queue(using, installation) as queue:
        found = sql_jobs.all_jobs(queue.cursor, schema=queue.schema)
    return [job for job in found if identifier is None or job.task_identifier == identifier]


def assert_enqueued(
    task: Any,
    *,
    count: int | None = None,
    using: str | None = None,
    installation: str | None = None,
    **values: Unpack[JobValues],
) -> list[Job]:
    """Assert that the queue has jobs of a task with these values: ``count`` of them, or at least one; return them.

    Of a payload, only what is given is compared. A ``run_at`` may be a delay. Jobs that have permanently failed do not
    count.
    """
    __tracebackhide__ = True
    expectation = Expectation(task, values)
    return assert_among(_waiting(using, installation), expectation, count)


def assert_not_enqueued(
    task: Any = None,
    *,
    using: str | None = None,
    installation: str | None = None,
    **values: Unpack[JobValues],
) -> None:
    """Assert that the queue has no job of a task, or of any task, with these values."""
    __tracebackhide__ = True
    expectation = Expectation(task, values)
    found = [job for job in _waiting(using, installation) if expectation.is_met(job)]
    if found:
        raise AssertionError(f"Expected no job of {expectation}, got {len(found)}:\n{shown(found, _described)}")


class assert_enqueued_in:  # noqa: N801 - it is used like a function
    """Assert that a block adds jobs: ``with assert_enqueued_in(task, count=2) as added: …``.

    Only jobs that the block adds, or replaces by their key, count. After the block ``added`` lists them. Without a
    task, jobs of any task count; with ``count=0``, the block must add none.
    """

    def __init__(
        self,
        task: Any = None,
        *,
        count: int | None = None,
        using: str | None = None,
        installation: str | None = None,
        **values: Unpack[JobValues],
    ) -> None:
        self._expectation = Expectation(task, values)
        self._count = count
        self._place = {"using": using, "installation": installation}
        self._before: dict[int, int] = {}
        self._added: list[Job] = []

    def __enter__(self) -> list[Job]:
        self._before = {job.id: job.revision for job in jobs(**self._place)}
        return self._added

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        if error is not None:
            return
        added = [job for job in jobs(**self._place) if self._before.get(job.id) != job.revision]
        self._added += assert_among(added, self._expectation, self._count, of_block=True)

    async def __aenter__(self) -> list[Job]:
        return await sync_to_async(self.__enter__)()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        await sync_to_async(self.__exit__)(kind, error, traceback)


class Expectation:
    """A task, or any task, and the values that its jobs must have."""

    def __init__(self, task: Any, values: Mapping[str, Any]) -> None:
        unknown = sorted(set(values) - {"payload", *_KNOWN_OPTIONS})
        if unknown:
            known = ", ".join(["payload", *_KNOWN_OPTIONS])
            raise InvalidTypeError(f"expected values of a job ({known}), got {unknown[0]!r}.")
        self.identifier = None if task is None else identifier_of(task)
        self._values = {
            name: value if name == "payload" else _checked(_KNOWN_OPTIONS[name], value)
            for name, value in values.items()
        }

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


def _checked(option: JobOption, value: Any) -> Any:
    """Return the value as a job has it; raise for a value that no job has: compared with it, every job differs."""
    if value is None or value is False:
        if option.default not in (None, frozenset()):
            raise InvalidTypeError(f"{option.name}: expected a value that a job can have, got {value!r}.")
        return option.default
    checked = option.check(value)
    if isinstance(checked, datetime):
        return aware(checked, name=option.name)
    return frozenset(checked) if isinstance(checked, tuple) else checked


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
    hint = did_you_mean(identifier, registry.tasks.identifiers())
    return f" No task has this identifier. {hint}" if hint else ""


def _fits(name: str, expected: Any, job: Job) -> bool:
    actual = _actual(name, job, expected)
    if name in ("payload", "headers"):
        return is_part(expected, actual)
    if isinstance(expected, timedelta):
        return actual is not None and bool(abs(actual - expected) <= TOLERANCE)
    return bool(expected == actual)


def _actual(name: str, job: Job, expected: Any) -> Any:
    if name == "payload":
        return job.payload
    option = _KNOWN_OPTIONS[name]
    value = getattr(job, str(option.attribute))
    if isinstance(expected, timedelta) and value is not None:
        return value - getattr(job, str(option.counted_from))
    return value


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
    more = len(jobs) - MAX_SHOWN
    lines = [describe(job) for job in jobs[:MAX_SHOWN]]
    return "\n".join([*lines, f"and {more} more"] if more > 0 else lines)


def assert_among(
    candidates: Sequence[Job], expectation: Expectation, count: Any, *, of_block: bool = False
) -> list[Job]:
    """Assert that ``count`` of these jobs, or at least one, meet an expectation; return them."""
    __tracebackhide__ = True
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 0):
        raise InvalidTypeError(f"count: expected a number of jobs of zero or more, got {count!r}.")
    met = [job for job in candidates if expectation.is_met(job)]
    if len(met) == count or (count is None and met):
        return met
    number = "a job" if count is None else f"{count} job{'' if count == 1 else 's'}"
    others = [job for job in candidates if expectation.concerns(job) and job not in met]
    lines = [f"Expected {number} of {expectation}, got {len(met) or 'none'}."]
    if met:
        lines.append(shown(met, _described))
    if others:
        lines += ["These differ:", shown(others, expectation.differences)]
    if not met and not others:
        lines[0] += f" {overview(candidates, of_block=of_block)}{hint_for(expectation.identifier)}"
    raise AssertionError("\n".join(lines))


def _waiting(using: str | None, installation: str | None) -> list[Job]:
    return [job for job in jobs(using=using, installation=installation) if job.attempts < job.max_attempts]


def _described(job: Job) -> str:
    queue = "" if job.queue_name is None else f", queue {job.queue_name}"
    return f"  job {job.id}, {job.task_identifier}{queue}, due {job.run_at.isoformat()}, payload {job.payload!r}"


ajobs = async_variant(jobs)
aassert_enqueued = async_variant(assert_enqueued)
aassert_not_enqueued = async_variant(assert_not_enqueued)
