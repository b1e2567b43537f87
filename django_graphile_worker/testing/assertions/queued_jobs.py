"""``jobs()``, and assertions about the jobs in the queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django_graphile_worker.api.async_variants import async_variant
from django_graphile_worker.api.connection import open_queue
from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.jobs import Job
from django_graphile_worker.sql import simulation as sql_simulation
from django_graphile_worker.testing.assertions.expectations import Expectation, hint_for, identifier_of, overview, shown

if TYPE_CHECKING:
    from typing import Unpack

    from django_graphile_worker.testing.assertions.expectations import JobValues


def jobs(task: Any = None, *, using: str | None = None, installation: str | None = None) -> list[Job]:
    """Return the jobs in the queue, of a task or of all tasks, in the order in which they were added."""
    identifier = None if task is None else identifier_of(task)
    with open_queue(using, installation) as queue:
        found = sql_simulation.all_jobs(queue.cursor, schema=queue.schema)
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
