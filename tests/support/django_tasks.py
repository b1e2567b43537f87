"""Django tasks for tests. Import it while ``settings.TASKS`` names our backend: see ``framework``."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from django_graphile_worker import Limit
from django_graphile_worker.backend import task
from django_graphile_worker.exceptions import PermanentFailure

# What the tasks were called with.
calls: list[Any] = []


@task
def add(left: int, right: int = 0) -> int:
    calls.append((left, right))
    return left + right


@task
async def later(value: str) -> str:
    await asyncio.sleep(0)
    calls.append(value)
    return value.upper()


@task(takes_context=True)
def about(context: Any) -> dict[str, Any]:
    calls.append((context.task_result.status, context))
    return {"attempt": context.attempt, "id": context.task_result.id}


@task(takes_context=True)
async def about_later(context: Any, word: str) -> Any:
    calls.append(context)
    return [context.attempt, word]


@task(backoff=timedelta(0), max_attempts=3)
def broken(text: str = "no such order") -> None:
    calls.append(text)
    raise ValueError(text)


@task(max_attempts=2)
def picky(word: str) -> str:
    if not word:
        raise TypeError("no word")
    return word


@task(backoff=timedelta(0), max_attempts=25, takes_context=True)
def flaky(context: Any) -> str:
    if context.attempt < 3:
        raise ConnectionError(f"attempt {context.attempt}")
    return f"attempt {context.attempt}"


@task
def hopeless() -> None:
    raise PermanentFailure("never")


@task
def unsuitable() -> Any:
    return {"found": [{1, 2}]}


@task(queue_name="emails", priority=20, keep_result=3600)
def mail(to: str) -> str:
    calls.append(to)
    return to


@task(job_key=lambda number, **options: f"report:{number}")
def report(number: int, *, title: str = "") -> str:
    calls.append((number, title))
    return title


@task(atomic=True)
def atomic() -> str:
    return "done"


@task(keep_result=False)
def unkept() -> str:
    calls.append("unkept")
    return "nobody reads it"


@task(
    takes_context=True,
    limit=[Limit("account:{account}", concurrency=1), Limit(lambda account, **_: account, rate="9/m", name="function")],
    fair="{tenant}",
)
def limited(context: Any, account: int, *, tenant: str = "none") -> None:
    calls.append((account, tenant))


def _undeclared() -> None:
    """A function whose task has another name, so that a worker would not find it."""


misnamed = task(_undeclared)


def plain_function(*args: Any, **kwargs: Any) -> None:
    calls.append("a function that is no task")
