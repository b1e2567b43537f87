"""``assert_enqueued_in()``: which jobs a block of code adds."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async

from django_graphile_worker.jobs import Job
from django_graphile_worker.testing.assertions.expectations import Expectation
from django_graphile_worker.testing.assertions.queued_jobs import assert_among, jobs

if TYPE_CHECKING:
    from typing import Unpack

    from django_graphile_worker.testing.assertions.expectations import JobValues


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
