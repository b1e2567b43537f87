"""Tasks that record their start and end, and tasks that misbehave on purpose."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from asgiref.sync import sync_to_async
from django.db import connection

from django_graphile_worker import RetryLater, task
from django_graphile_worker.worker.execution.helpers import Helpers
from tests.worker_app import history

# An event that is never set. Tasks wait for it to let time pass.
_never = threading.Event()
POLL = 0.01


@task
def quick(payload: Any, helpers: Helpers) -> None:
    """Run for the number of seconds in the payload."""
    with history.recording(helpers.job):
        seconds = payload.get("seconds", 0)
        if seconds:
            _never.wait(seconds)


_leaked: list[bytes] = []


@task
def leaks(payload: Any, helpers: Helpers) -> None:
    """Keep a megabyte for ever, record the memory of the process, and run for the number of seconds in the payload."""
    with history.recording(helpers.job):
        _leaked.append(b"x" * 1_048_576)
        history.record("memory", helpers.job, f"{psutil.Process().memory_info().rss / 1_048_576:.0f}")
        _never.wait(payload["seconds"])


@task
def records_items(payload: list[Any], helpers: Helpers) -> None:
    """Record each item of the payload."""
    with history.recording(helpers.job):
        for item in payload:
            history.record("item", helpers.job, str(item))


@task
def logs_and_fails(payload: Any) -> None:
    """Log the text of the payload through a logger of the project, and fail."""
    logging.getLogger("shop").info("a line: %s", payload["text"])
    raise ValueError(payload["text"])


@task
def quiet(payload: Any) -> None:
    """Record nothing, so that thousands of these jobs are cheap."""


@task
def brief(payload: Any) -> None:
    """Record nothing, and run for some milliseconds."""
    _never.wait(0.005)


@task
def listed(payload: Any, helpers: Helpers) -> None:
    """Write the id of the job to a file, which is cheap, and run for the number of seconds in the payload."""
    with Path(payload["path"]).open("a") as ids:
        ids.write(f"{helpers.job.id}\n")
    _never.wait(payload["seconds"])


@task
def until(payload: Any, helpers: Helpers) -> None:
    """Run until the test records the word of the payload, for all processes or for this process."""
    with history.recording(helpers.job):
        words = (payload["word"], f"{payload['word']} {os.getpid()}")
        while not any(history.is_recorded("go", word) for word in words):
            _never.wait(POLL)


@task
def recurses_until(payload: Any, helpers: Helpers) -> None:
    """Call functions inside each other, often enough to take and free stack memory, until the test says the word."""

    def recurse(depth: int) -> int:
        return 0 if depth == 0 else recurse(depth - 1)

    with history.recording(helpers.job):
        while not history.is_recorded("go", payload["word"]):
            for _ in range(300):
                recurse(400)


@task(timeout=False)
def unlimited_until(payload: Any, helpers: Helpers) -> None:
    """Run until the test lets jobs with this word continue, whatever the setting TIMEOUT says."""
    with history.recording(helpers.job):
        while not history.is_recorded("go", payload["word"]):
            _never.wait(POLL)


@task
def keeps_the_lock_of_the_interpreter(payload: Any, helpers: Helpers) -> None:
    """Block in C, without releasing the lock, so that no other thread of the process runs."""
    with history.recording(helpers.job):
        ctypes.PyDLL(None).sleep(60)


@task
def until_aborted(payload: Any, helpers: Helpers) -> None:
    """Run until ``helpers.abort`` is set."""
    with history.recording(helpers.job):
        helpers.abort.wait()
        history.record("aborted", helpers.job)


@task
def retries_at_stop(payload: Any, helpers: Helpers) -> None:
    """Stop when the worker stops, and ask for a retry."""
    with history.recording(helpers.job):
        helpers.abort.wait()
        raise RetryLater(0)


@task
def retries_unfinished_items_at_stop(payload: list[Any], helpers: Helpers) -> list[Any]:
    """Stop when the worker stops with the first item done, and ask for a retry of the other items."""
    with history.recording(helpers.job):
        helpers.abort.wait()
    return [None, *(RetryLater(0) for _ in payload[1:])]


@task
def never_ends(payload: Any, helpers: Helpers) -> None:
    """Never end, and ignore the abort signal."""
    with history.recording(helpers.job):
        _never.wait()


@task
def waits_in_the_database(payload: Any, helpers: Helpers) -> None:
    """Wait in a statement, which raises an error when the server stops or its backend is terminated."""
    with history.recording(helpers.job):
        helpers.query("select pg_sleep(%s)", [payload["seconds"]])


@task
async def endless_coroutine(payload: Any, helpers: Helpers) -> None:
    """Wait for ever, and record a cancellation."""
    with history.recording(helpers.job):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            history.record("cancelled", helpers.job)
            raise


@task
async def uncancellable_coroutine(payload: Any, helpers: Helpers) -> None:
    """Wait for ever, and ignore cancellations."""
    with history.recording(helpers.job):
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                history.record("cancelled", helpers.job)


@task
def waits_for_a_pool_thread(payload: Any, helpers: Helpers) -> None:
    """Wait for a thread of a pool that never ends. Register the exit handlers that the payload names."""
    at_exit: dict[str, Any] = {
        "write": lambda: print("written at exit"),  # noqa: T201
        "tell": lambda: print("exit handlers are called", flush=True),  # noqa: T201
        "wait": _never.wait,
    }
    for word in payload.get("at_exit", []):
        atexit.register(at_exit[word])
    with history.recording(helpers.job), ThreadPoolExecutor(1) as pool:
        pool.submit(_never.wait).result()


@task
def leaves_a_pool_thread(payload: Any, helpers: Helpers) -> None:
    """End while a thread of a pool continues."""
    ThreadPoolExecutor(1).submit(_never.wait)
    history.record("end", helpers.job)


@task
async def waits_for_an_asyncio_thread(payload: Any, helpers: Helpers) -> None:
    """Wait for a thread, which a cancellation does not end."""
    with history.recording(helpers.job):
        await asyncio.to_thread(_never.wait)


@task
async def blocks_the_loop(payload: Any, helpers: Helpers) -> None:
    """Block the event loop for the number of seconds in the payload."""
    with history.recording(helpers.job):
        _never.wait(payload["seconds"])


@task
def computes(payload: Any, helpers: Helpers) -> None:
    """Compute, and release the interpreter lock only when the interpreter enforces it."""
    with history.recording(helpers.job):
        until = time.monotonic() + payload["seconds"]
        while time.monotonic() < until:
            sum(range(10_000))


@task
def poison(payload: Any, helpers: Helpers) -> None:
    """End the whole process."""
    history.record("start", helpers.job)
    os._exit(77)


@task
def failing(payload: Any, helpers: Helpers) -> None:
    """Fail as often as the payload says, with a short delay until the retry."""
    with history.recording(helpers.job):
        if helpers.job.attempts <= payload.get("failures", 1):
            raise RetryLater(payload.get("delay", 0.0))


@task
def branching(payload: Any, helpers: Helpers) -> None:
    """Add further jobs."""
    with history.recording(helpers.job):
        for _ in range(payload.get("children", 0)):
            helpers.add_job(
                "branching",
                {"children": payload.get("children", 0) - 1},
                queue_name=payload.get("queue_name"),
            )


@task(atomic=True)
def exactly_once(payload: Any, helpers: Helpers) -> None:
    """Insert a row in the transaction that completes the job."""
    with history.recording(helpers.job):
        helpers.query("insert into fault_history.effect (job_id) values (%s)", [helpers.job.id])
        if payload.get("seconds"):
            _never.wait(payload["seconds"])
        while "word" in payload and not history.is_recorded("go", payload["word"]):
            _never.wait(POLL)


@task
def uses_the_orm_connection(payload: Any, helpers: Helpers) -> None:
    """Record the backend of Django's connection."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        (backend,) = cursor.fetchone()
    history.record("end", helpers.job, str(backend))


@task
def keeps_its_connection(payload: Any, helpers: Helpers) -> None:
    """Use Django's connection, and keep it until the test records the word of the payload."""
    with connection.cursor() as cursor:
        cursor.execute("select 1")
        until(payload, helpers)


@task
def leaves_a_transaction_open(payload: Any, helpers: Helpers) -> None:
    with connection.cursor() as cursor:
        cursor.execute("begin")


def forbidden_in_history() -> list[str]:
    """Return the flags that the history forbids, for FORBIDDEN_FLAGS. It uses Django's connection."""
    with connection.cursor() as cursor:
        cursor.execute("select note from fault_history.event where kind = 'forbid'")
        return [note for (note,) in cursor.fetchall()]


def forbidden_raising() -> list[str]:
    raise SystemExit("a callable that wants to end the worker")


def forbidden_by_a_fork(forks: list[int] = []) -> list[str]:  # noqa: B006 - kept between calls
    """Fork at the first claim; the child returns, too."""
    if not forks:
        forks.append(os.fork())
    return []


@task
def forks_and_returns(payload: Any, helpers: Helpers) -> None:
    """Fork a process that leaves the task by a return, an exit or an error."""
    if os.fork() == 0:
        if payload.get("how") == "exit":
            raise SystemExit(0)
        if payload.get("how") == "error":
            raise ValueError("in the child")
        return
    history.record("forked", helpers.job)


@task(atomic=True)
def forks_and_returns_atomically(payload: Any, helpers: Helpers) -> None:
    """Fork a process that returns, inside the transaction of the worker."""
    if os.fork() != 0:
        history.record("forked", helpers.job)


@task
async def forks_and_awaits(payload: Any, helpers: Helpers) -> None:
    """Fork on the event loop, and continue in both processes."""
    pid = os.fork()
    await asyncio.sleep(0)
    if pid != 0:
        await sync_to_async(history.record)("forked", helpers.job)


@task
async def forks_in_a_synchronous_part(payload: Any, helpers: Helpers) -> None:
    """Fork on the thread that runs synchronous calls of the coroutine."""
    if await sync_to_async(os.fork)() != 0:
        await sync_to_async(history.record)("forked", helpers.job)


def _begin_and_wait(has_begun: multiprocessing.synchronize.Event) -> None:
    has_begun.set()
    _never.wait()


@task
def has_a_child(payload: Any, helpers: Helpers) -> None:
    """Start a process with multiprocessing and fork, and wait for its end."""
    context = multiprocessing.get_context("fork")
    has_begun = context.Event()
    child = context.Process(target=_begin_and_wait, args=(has_begun,))
    child.start()
    # Python drops a signal that a process receives before its functions for a fork have run.
    has_begun.wait()
    history.record("child", helpers.job, str(child.pid))
    child.join()
    history.record("child ended", helpers.job, str(child.exitcode))


@task
def uses_processes(payload: Any, helpers: Helpers) -> None:
    """Use processes of every kind, then the connections of this process."""
    with history.recording(helpers.job):
        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(1) as pool:
                assert pool.apply(abs, (-1,)) == 1
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        helpers.query("select 1")
        with connection.cursor() as cursor:
            cursor.execute("select 1")


if "FAULT_LIMITED" in os.environ:
    from tests.worker_app import limited  # noqa: F401 - it registers tasks
