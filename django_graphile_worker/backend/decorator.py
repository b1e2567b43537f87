"""``task``: Django's decorator with the options of a job, typed.

Django 6.1 passes additional keywords of ``@task`` on to the backend, but its type stubs refuse them; Django 6.0 refuses
them at all. This decorator takes them with every version, and makes the same tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypedDict, TypeVar, overload

from django_graphile_worker.backend.compat import (
    DEFAULT_TASK_BACKEND_ALIAS,
    DEFAULT_TASK_QUEUE_NAME,
    TaskContext,
    task_backends,
)
from django_graphile_worker.backend.task_class import (
    Backoff,
    GraphileTask,
    JobKey,
    KeepResult,
    Timeout,
    refuse_unknown_options,
)
from django_graphile_worker.job_options import Expires, JobKeyModeOption, Unique
from django_graphile_worker.registry import Exceptions

if TYPE_CHECKING:
    from typing import Unpack

    from django_graphile_worker.limits import Limit

P = ParamSpec("P")
R = TypeVar("R")


class TaskOptions(TypedDict, total=False):
    """The keyword arguments of ``task()``, except ``takes_context``."""

    priority: int
    queue_name: str
    backend: str
    max_attempts: int | None
    backoff: Backoff | None
    give_up_on: Exceptions
    retry_for: Exceptions
    job_key: JobKey | None
    job_key_mode: JobKeyModeOption | None
    unique: Unique | str | bool | None
    flags: Iterable[str] | None
    atomic: bool
    keep_result: KeepResult | None
    expires: Expires | None
    timeout: Timeout | None
    limit: Limit | Sequence[Limit] | None
    fair: str | Callable[..., Any] | None
    schedulable: bool | str


@overload
def task(function: Callable[P, R], /) -> GraphileTask[P, R]: ...
@overload
def task(
    *, takes_context: Literal[True], **options: Unpack[TaskOptions]
) -> Callable[[Callable[Concatenate[TaskContext[Any, Any], P], R]], GraphileTask[P, R]]: ...
@overload
def task(
    *, takes_context: Literal[False] = False, **options: Unpack[TaskOptions]
) -> Callable[[Callable[P, R]], GraphileTask[P, R]]: ...
def task(
    function: Any = None,
    /,
    *,
    priority: int = 0,
    queue_name: str = DEFAULT_TASK_QUEUE_NAME,
    backend: str = DEFAULT_TASK_BACKEND_ALIAS,
    takes_context: bool = False,
    **options: Any,
) -> Any:
    """Make a Django task of a function: ``@task``, or ``@task(max_attempts=3)``.

    If the setting ``TASKS`` names another backend, for tests for example, the additional options have no effect.
    """
    refuse_unknown_options(options)

    def decorate(function: Callable[..., Any]) -> Any:
        task_class: Any = task_backends[backend].task_class
        taken = options if issubclass(task_class, GraphileTask) else {}
        return task_class(
            func=function,
            priority=priority,
            queue_name=queue_name,
            backend=backend,
            takes_context=takes_context,
            run_after=None,
            **taken,
        )

    return decorate if function is None else decorate(function)
