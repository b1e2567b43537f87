"""Tasks that say when they start and end, and some that misbehave on purpose."""

from __future__ import annotations

import asyncio
import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection

from django_graphile_worker import RetryLater, task
from django_graphile_worker.worker.execution.task_helpers import Helpers
from tests.worker_app import history

# A thread waits on an event that nobody sets: that is how a task takes its time here.
_never = threading.Event()
POLL = 0.01


@task
def quick(payload: Any, helpers: Helpers) -> None:
    """Starts, takes as many seconds as the payload says, ends."""
    with history.told(helpers.job):
        seconds = payload.get("seconds", 0)
        if seconds:
            _never.wait(seconds)


@task
def lists(payload: list[Any], helpers: Helpers) -> None:
    """Tells each item of its payload."""
    with history.told(helpers.job):
        for item in payload:
            history.tell("item", helpers.job, str(item))


@task
def quiet(payload: Any) -> None:
    """Tells nothing: for jobs by the thousand."""


@task
def brief(payload: Any) -> None:
    """Tells nothing either, and takes some milliseconds."""
    _never.wait(0.005)


@task
def until(payload: Any, helpers: Helpers) -> None:
    """Runs until the test says so: until the payload's word is in the history, for all or for this process."""
    with history.told(helpers.job):
        words = (payload["word"], f"{payload['word']} {os.getpid()}")
        while not any(history.is_there("go", word) for word in words):
            _never.wait(POLL)


@task
def until_aborted(payload: Any, helpers: Helpers) -> None:
    """A task that listens to ``helpers.abort``."""
    with history.told(helpers.job):
        helpers.abort.wait()
        history.tell("aborted", helpers.job)


@task
def gives_way(payload: Any, helpers: Helpers) -> None:
    """Stops when the worker does, and asks to be run again."""
    with history.told(helpers.job):
        helpers.abort.wait()
        raise RetryLater(0)


@task
def gives_way_in_parts(payload: list[Any], helpers: Helpers) -> list[Any]:
    """Has done the first item when the worker stops, and asks to be run again for the others."""
    with history.told(helpers.job):
        helpers.abort.wait()
    return [None, *(RetryLater(0) for _ in payload[1:])]


@task
def stubborn(payload: Any, helpers: Helpers) -> None:
    """Hears nothing and never ends."""
    with history.told(helpers.job):
        _never.wait()


@task
def waits_in_the_database(payload: Any, helpers: Helpers) -> None:
    """Raises when the server goes away, or its backend is terminated."""
    with history.told(helpers.job):
        helpers.query("select pg_sleep(%s)", [payload["seconds"]])


@task
async def patient(payload: Any, helpers: Helpers) -> None:
    """A coroutine that waits for ever, and tells that it was cancelled."""
    with history.told(helpers.job):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            history.tell("cancelled", helpers.job)
            raise


@task
async def stubborn_coroutine(payload: Any, helpers: Helpers) -> None:
    """A coroutine that takes no for an answer."""
    with history.told(helpers.job):
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                history.tell("cancelled", helpers.job)


@task
def lends_a_thread(payload: Any, helpers: Helpers) -> None:
    """Waits for a thread of a pool, which never ends. What is to be done at the end of the process is said, too."""
    at_exit: dict[str, Any] = {"say": lambda: print("said at the end"), "wait": _never.wait}  # noqa: T201
    for word in payload.get("at_exit", []):
        atexit.register(at_exit[word])
    with history.told(helpers.job), ThreadPoolExecutor(1) as pool:
        pool.submit(_never.wait).result()


@task
def leaves_a_thread(payload: Any, helpers: Helpers) -> None:
    """Is done, and its pool is not."""
    ThreadPoolExecutor(1).submit(_never.wait)
    history.tell("end", helpers.job)


@task
async def lends_a_thread_of_asyncio(payload: Any, helpers: Helpers) -> None:
    """Is cancelled, but not what it waits for."""
    with history.told(helpers.job):
        await asyncio.to_thread(_never.wait)


@task
async def blocks_the_loop(payload: Any, helpers: Helpers) -> None:
    """A coroutine that does what no coroutine should."""
    with history.told(helpers.job):
        _never.wait(payload["seconds"])


@task
def burns(payload: Any, helpers: Helpers) -> None:
    """Computes, and leaves the interpreter to others only when it must."""
    with history.told(helpers.job):
        until = time.monotonic() + payload["seconds"]
        while time.monotonic() < until:
            sum(range(10_000))


@task
def poison(payload: Any, helpers: Helpers) -> None:
    """Takes its whole process down."""
    history.tell("start", helpers.job)
    if payload.get("how") == "signal":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(payload.get("code", 77))


@task
def failing(payload: Any, helpers: Helpers) -> None:
    """Fails as often as the payload says, to be tried again soon."""
    with history.told(helpers.job):
        if helpers.job.attempts <= payload.get("failures", 1):
            raise RetryLater(payload.get("delay", 0.0))


@task
def branching(payload: Any, helpers: Helpers) -> None:
    """Adds the next jobs before it ends."""
    with history.told(helpers.job):
        for _ in range(payload.get("children", 0)):
            helpers.add_job(
                "branching",
                {"children": payload.get("children", 0) - 1},
                queue_name=payload.get("queue_name"),
            )


@task(atomic=True)
def exactly_once(payload: Any, helpers: Helpers) -> None:
    """Writes one row, in the transaction that ends its job."""
    with history.told(helpers.job):
        helpers.query("insert into fault_history.effect (job_id) values (%s)", [helpers.job.id])
        if payload.get("seconds"):
            _never.wait(payload["seconds"])
        while "word" in payload and not history.is_there("go", payload["word"]):
            _never.wait(POLL)


@task
def uses_the_orm_connection(payload: Any, helpers: Helpers) -> None:
    """The first thing that it does is a query on Django's own connection."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        (backend,) = cursor.fetchone()
    history.tell("end", helpers.job, str(backend))


@task
def keeps_its_connection(payload: Any, helpers: Helpers) -> None:
    """Uses Django's connection, and goes on while it has it."""
    with connection.cursor() as cursor:
        cursor.execute("select 1")
        until(payload, helpers)


@task
def leaves_a_transaction_open(payload: Any, helpers: Helpers) -> None:
    with connection.cursor() as cursor:
        cursor.execute("begin")


def forbidden_now() -> list[str]:
    """Asks Django's connection which flags are forbidden: a callable of FORBIDDEN_FLAGS."""
    with connection.cursor() as cursor:
        cursor.execute("select note from fault_history.event where kind = 'forbid'")
        return [note for (note,) in cursor.fetchall()]


async def forbidden_async() -> list[str]:
    return ["red"]


def forbidden_wrongly() -> list[str]:
    raise SystemExit("a callable that wants to end the worker")


def forbidden_by_a_fork(forks: list[int] = []) -> list[str]:  # noqa: B006 - it is to be remembered
    """Makes a process at the first claim that returns, too."""
    if not forks:
        forks.append(os.fork())
    return []


@task
def forks_and_returns(payload: Any, helpers: Helpers) -> None:
    """Makes a process that does not end itself, in one of several ways."""
    if os.fork() == 0:
        if payload.get("how") == "exit":
            raise SystemExit(0)
        if payload.get("how") == "error":
            raise ValueError("in the child")
        return
    history.tell("forked", helpers.job)


@task(atomic=True)
def forks_and_returns_atomically(payload: Any, helpers: Helpers) -> None:
    """The same inside the worker's own transaction."""
    if os.fork() != 0:
        history.tell("forked", helpers.job)


@task
async def forks_and_awaits(payload: Any, helpers: Helpers) -> None:
    """Makes a process on the event loop, and goes on in both."""
    pid = os.fork()
    await asyncio.sleep(0)
    if pid != 0:
        await sync_to_async(history.tell)("forked", helpers.job)


@task
async def forks_in_a_synchronous_part(payload: Any, helpers: Helpers) -> None:
    """Makes a process on the thread that serves the coroutine."""
    if await sync_to_async(os.fork)() != 0:
        await sync_to_async(history.tell)("forked", helpers.job)


@task
def has_a_child(payload: Any, helpers: Helpers) -> None:
    """Starts a process by fork, as multiprocessing does, and waits for its end."""
    child = multiprocessing.get_context("fork").Process(target=_never.wait)
    child.start()
    history.tell("child", helpers.job, str(child.pid))
    child.join()
    history.tell("child ended", helpers.job, str(child.exitcode))


@task
def uses_processes(payload: Any, helpers: Helpers) -> None:
    """Has processes of every kind do something, and uses its own connections afterwards."""
    with history.told(helpers.job):
        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(1) as pool:
                assert pool.apply(abs, (-1,)) == 1
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        helpers.query("select 1")
        with connection.cursor() as cursor:
            cursor.execute("select 1")
