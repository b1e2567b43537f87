"""Calls that add jobs, for the type checker only: mypy finds each wrong one, and an ignored line that is right."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict, assert_type

from django.tasks import TaskContext

from django_graphile_worker import Helpers, Job, JobKeyMode, JobSpec, Task, add_job, task
from django_graphile_worker.backend import enqueue_many
from django_graphile_worker.backend import task as django_task


@dataclass
class Receipt:
    order: int


class Greeting(TypedDict):
    name: str


@task
def untyped(payload: Any) -> None: ...
@task
def send(payload: Receipt) -> None: ...
@task("mail:send", priority=5, backoff=5)
def named(payload: Receipt, helpers: Helpers) -> str:
    return ""


@task
async def greet(payload: Greeting) -> None: ...
@task(queue_name="tidy")
def tidy() -> None: ...
@task
def optional(payload: Receipt | None = None) -> None: ...
@task
def batch(payload: list[Receipt], *, helpers: Helpers) -> None: ...


untyped.add_job()
untyped.add_job({"a": 1}, run_at=timedelta(1), queue_name="mail", job_key="k", flags={"slow"}, using="default")
assert_type(send.add_job(Receipt(1), max_attempts=3), Job)
send.add_job({"order": 1})
send(Receipt(1))
send(payload=Receipt(1))
named.add_job(Receipt(1))
named.add_job({"order": 1})
tidy.add_job(priority=1)
tidy.add_job(job_key="tidy", job_key_mode="preserve_run_at")
add_job("tidy", job_key="tidy", job_key_mode=JobKeyMode.REPLACE)
optional.add_job()
optional.add_job({"order": 1})
batch.add_job([Receipt(1), {"order": 2}])
greet.add_job({"name": "Ada"})
add_job(send, {"order": 1})
JobSpec(send, {"order": 1})


async def later() -> None:
    assert_type(await greet.aadd_job({"name": "Ada"}), Job)
    await send.aadd_job("wrong")  # type: ignore[call-overload]


def takes(any_task: Task[Any, Any]) -> None:
    any_task.add_job({})


takes(send)
send.add_job("wrong type")  # type: ignore[call-overload]
send("wrong type")  # type: ignore[call-overload]
send.add_job(Receipt(1), queue="mail")  # type: ignore[call-overload]
send.add_job({}, countdown=3)  # type: ignore[call-overload]
send.add_job(Receipt(1), priority="high")  # type: ignore[call-overload]
send.add_job(Receipt(1), job_key="k", job_key_mode="preserve_runat")  # type: ignore[call-overload]
send.delay({"order": 1})  # type: ignore[attr-defined]
untyped.add_job({}, queue="mail", countdown=3)  # type: ignore[call-overload]
named.add_job(5)  # type: ignore[call-overload]
batch.add_job("x")  # type: ignore[arg-type]
greet.add_job({"nam": "Ada"})  # type: ignore[arg-type]
add_job(send, {}, countdown=3)  # type: ignore[call-arg]
add_job("send", job_key="k", job_key_mode="dedupe")  # type: ignore[arg-type]
JobSpec(send, {}, queue="mail")  # type: ignore[call-arg]
task(max_retries=3)  # type: ignore[call-overload]


@django_task(max_attempts=3, backoff=timedelta(1), job_key="k", keep_result=True, queue_name="emails", atomic=True)
def resize(picture: int, width: int = 1) -> str:
    return ""


@django_task
async def crop(picture: int) -> None: ...
@django_task(takes_context=True)
def about(context: TaskContext[Any, Any], word: str) -> int:
    return 1


assert_type(resize.enqueue(1, width=2).return_value, str)
assert_type(about.enqueue("x").return_value, int)
assert_type(resize.using(run_after=timedelta(1), job_key="x", max_attempts=2).enqueue(1).return_value, str)
enqueue_many([(resize, [1]), (about, ["x"], {}), (crop, [1])])
crop.enqueue("x")  # type: ignore[arg-type]
about.enqueue(5)  # type: ignore[arg-type]
resize.using(countdown=3)  # type: ignore[call-arg]
django_task(max_attempts="3")  # type: ignore[call-overload]
django_task(retries=3)  # type: ignore[call-overload]
