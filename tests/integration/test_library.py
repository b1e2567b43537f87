"""The worker as a library: ``run_once()``, ``run_worker()`` and ``Worker``, called from code."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

import django_graphile_worker
from django_graphile_worker import (
    GraphileWorkerError,
    StopRequest,
    Worker,
    add_job,
    conf,
    exceptions,
    run_once,
    run_worker,
    signals,
    task,
)
from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.models import Job
from django_graphile_worker.routing import places_to_serve
from django_graphile_worker.worker import shutdown
from django_graphile_worker.worker.entrypoints import build_runners
from django_graphile_worker.worker.execution.event_loop import EventLoop
from django_graphile_worker.worker.fetching.task_directory import TaskDirectory
from django_graphile_worker.worker.worker_options import OnceOptions, WorkerOptions
from tests.conftest import RawConnection
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db(transaction=True)


def note(payload: Any) -> None:
    if payload == "fail":
        raise ValueError("as asked")


@pytest.fixture(autouse=True)
def note_is_the_only_task() -> Iterator[None]:
    with own_tasks(note):
        yield


@pytest.mark.parametrize(("in_project", "in_call", "is_told"), [(True, False, False), (False, True, True)])
def test_log_success__is_the_workers_own_setting_before_the_projects(
    settings: Any, caplog: pytest.LogCaptureFixture, in_project: bool, in_call: bool, is_told: bool
) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"LOG_SUCCESS": in_project}
    caplog.set_level(logging.INFO, logger="django_graphile_worker")
    add_job("note")
    add_job("note", "fail", max_attempts=1)
    assert run_once(log_success=in_call) == 0
    assert ("note #" in caplog.text and " succeeded after" in caplog.text) is is_told
    assert " permanently failed after" in caplog.text


def untyped(function: Any, **options: Any) -> Callable[[], Any]:
    """A call that a type checker would refuse."""
    return lambda: function(**options)


def _build(change: Callable[[conf.Settings], conf.Settings]) -> list[Any]:
    return build_runners(places_to_serve(change=change))


def _open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_run_once__leaves_no_file_open() -> None:
    run_once()
    before = _open_files()
    for _ in range(3):
        run_once()
    assert _open_files() == before


def test_stop_request_of_the_caller__stays_usable() -> None:
    stop = StopRequest()
    run_once(stop=stop)
    stop("now")
    assert stop.is_made
    stop.close()


@pytest.mark.parametrize("run", [run_once, run_worker])
def test_stop__of_another_kind_is_refused_with_the_way_out(run: Any) -> None:
    with pytest.raises(TypeError, match=r"stop: expected a StopRequest, got <threading\.Event.*StopRequest\(\)"):
        run(stop=threading.Event())


@pytest.mark.parametrize("make", [run_once, run_worker, Worker])
@pytest.mark.parametrize(
    ("databases", "expected"),
    [
        ("default", r"databases: expected a list of database aliases, got 'default'\. A single one is a list too"),
        (["nope"], r"databases: expected an alias of settings\.DATABASES \('default', 'other'\), got 'nope'\."),
        ([None], r"databases: expected a list of database aliases, got \[None\]"),
    ],
)
def test_databases__that_are_none_are_refused_with_the_way_out(make: Any, databases: Any, expected: str) -> None:
    with pytest.raises(GraphileWorkerError, match=expected):
        make(databases=databases)


def test_database__that_is_not_postgresql_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["other"], "vendor", "sqlite")
    with pytest.raises(GraphileWorkerError, match=r"expected a PostgreSQL database, got sqlite for the alias 'other'"):
        run_once(databases=["other"])


def test_database__given_twice_is_served_once() -> None:
    assert [runner.place.using for runner in build_runners(places_to_serve(["default", "default"]))] == ["default"]


async def async_word() -> str:
    return "red"


def complain() -> list[str]:
    raise ValueError("not today")


@pytest.mark.parametrize(
    ("function", "got"),
    [
        (lambda: "red", "got 'red'."),
        (async_word, "got 'red'."),
        (lambda: ["red", 1], "got ['red', 1]."),
        (lambda: 7, "got 7."),
        (complain, "got ValueError: not today"),
    ],
)
@pytest.mark.parametrize("more", [(), ("blue",)])
def test_forbidden_flags__that_are_none_are_an_error_that_names_the_setting(
    function: Any, got: str, more: tuple[str, ...]
) -> None:
    (runner,) = _build(lambda settings: settings.replace(forbidden_flags=function).forbidding(more))
    with pytest.raises(ConfigurationError) as raised:
        runner.parts.forbidden_flags()
    assert str(raised.value).endswith(
        f'GRAPHILE_WORKER["FORBIDDEN_FLAGS"]: expected its callable to return a list of flags, {got}'
    )


async def async_flags() -> list[str]:
    return ["red"]


@pytest.mark.parametrize("function", [lambda: ["red"], lambda: iter(["red"]), async_flags, lambda: {"red"}])
def test_forbidden_flags__of_any_callable_can_be_added_to(function: Any) -> None:
    (runner,) = _build(lambda settings: settings.replace(forbidden_flags=function).forbidding(["blue"]))
    assert runner.parts.forbidden_flags() == ("red", "blue")


class Gates:
    """A task that waits, of several databases, and is let go at the end of the test."""

    def __init__(self) -> None:
        self.has_begun = threading.Semaphore(0)
        self.may_end = threading.Event()

    def __call__(self, payload: Any) -> None:
        self.has_begun.release()
        self.may_end.wait(60)

    def wait(self) -> None:
        assert self.has_begun.acquire(timeout=60)


@pytest.fixture
def gate() -> Iterator[Gates]:
    gate = Gates()
    with own_tasks():
        task("wait")(gate)
        yield gate
    gate.may_end.set()


def _worker_threads() -> list[str]:
    kept = ("watchdog", "slot")  # one per process; those of jobs that nobody can end
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("graphile-worker") and not any(word in thread.name for word in kept)
    ]


def test_worker__that_was_stopped_can_be_started_again(gate: Gates) -> None:
    gate.may_end.set()
    worker = Worker(concurrency=1)
    for _ in range(2):
        worker.start()
        add_job("wait")
        gate.wait()
        assert worker.stop() is True
    assert worker.stop() is True, "a second stop has nothing to do"


def test_worker__refuses_a_second_start_and_goes_on(gate: Gates) -> None:
    gate.may_end.set()
    with Worker(concurrency=1) as worker:
        threads = len(_worker_threads())
        with pytest.raises(GraphileWorkerError, match=r"expected a worker that does not run.* Call stop\(\) first"):
            worker.start()
        assert len(_worker_threads()) <= threads
        add_job("wait")
        gate.wait()
    assert _worker_threads() == []


def test_worker__that_cannot_start_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any) -> None:
        raise GraphileWorkerError("not today")

    worker = Worker(concurrency=1)
    with monkeypatch.context() as patched, pytest.raises(GraphileWorkerError, match="not today"):
        patched.setattr(TaskDirectory, "review", refuse)
        worker.start()
    assert _worker_threads() == []
    worker.start()
    assert worker.stop() is True


def test_stop__tells_that_a_job_was_cut_off(gate: Gates) -> None:
    worker = Worker(concurrency=1, grace_period=0)
    worker.start()
    job = add_job("wait")
    gate.wait()
    assert worker.stop() is False
    given_back = Job.objects.get(pk=job.id)
    assert (given_back.locked_by, given_back.attempts) == (None, 0)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_stop__stops_all_databases_at_once(gate: Gates) -> None:
    """Each is let go only when both are being stopped."""
    worker = Worker(concurrency=1, databases=["default", "other"], grace_period=60)
    worker.start()
    for alias in ("default", "other"):
        add_job("wait", using=alias)
        gate.wait()
    stopping: list[str] = []

    def note_stopping(worker_id: str, **arguments: Any) -> None:
        stopping.append(worker_id)
        if len(stopping) == 2:
            gate.may_end.set()

    signals.worker_stopping.connect(note_stopping)
    try:
        assert worker.stop() is True
    finally:
        signals.worker_stopping.disconnect(note_stopping)
    assert len(set(stopping)) == 2


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_signals_and_lines__say_which_database_they_are_about(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="django_graphile_worker")
    heard: dict[str, set[str]] = {}

    def listen(name: str, event: signals.Event) -> None:
        def hear(**arguments: Any) -> None:
            assert set(event.arguments) <= set(arguments)
            heard.setdefault(name, set()).add(arguments["database"])

        event.connect(hear, weak=False, dispatch_uid=listen)

    events = {name: event for name, event in vars(signals).items() if isinstance(event, signals.Event)}
    for name, event in events.items():
        listen(name, event)
    add_job("note", using="default")
    add_job("note", "fail", using="other", max_attempts=1)
    try:
        run_once(databases=["default", "other"])
    finally:
        for event in events.values():
            event.disconnect(dispatch_uid=listen)
    both = {"default", "other"}
    assert heard["worker_started"] == heard["job_started"] == heard["job_released"] == heard["worker_stopped"] == both
    assert (heard["job_succeeded"], heard["job_permanently_failed"]) == ({"default"}, {"other"})
    (succeeded,) = [line for line in caplog.messages if " succeeded after" in line]
    (failed,) = [line for line in caplog.messages if " permanently failed after" in line]
    assert (succeeded.split()[0], failed.split()[0]) == ("[default]", "[other]")
    caplog.clear()
    add_job("note")
    run_once()
    assert caplog.messages
    assert "[" not in "".join(caplog.messages)


class Coroutines:
    """Tasks that do not heed their cancellation, each in its way; they end when the test does."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    async def blocks(self, payload: Any) -> None:
        self.has_begun.set()
        self.may_end.wait(60)

    async def swallows(self, payload: Any) -> None:
        await Job.objects.acount()
        self.has_begun.set()
        while not self.may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)


@pytest.fixture
def coroutines() -> Iterator[Coroutines]:
    coroutines = Coroutines()
    yield coroutines
    coroutines.may_end.set()


@pytest.mark.parametrize("name", ["blocks", "swallows"])
def test_stop__takes_a_second_more_than_the_grace_period_whatever_coroutines_do(
    gate: Gates, coroutines: Coroutines, name: str
) -> None:
    task("stubborn")(getattr(coroutines, name))
    worker = Worker(concurrency=2, grace_period=0)
    worker.start()
    jobs = [add_job("wait").id, add_job("stubborn").id]
    gate.wait()
    assert coroutines.has_begun.wait(60)
    began = time.monotonic()
    assert worker.stop() is False
    # Some time more for a slow machine; it was five seconds more, and two and a half.
    assert time.monotonic() - began < shutdown.CLEANUP_TIMEOUT + 2.0
    given_back = Job.objects.filter(pk__in=jobs, locked_by=None, attempts=0)
    assert given_back.count() == 2


def _slot_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("graphile-worker-slot")}


@pytest.mark.parametrize("name", ["blocks", "swallows"])
def test_stop__leaves_no_thread_that_waits_for_a_coroutine(
    coroutines: Coroutines, wait_until: Callable[..., None], name: str
) -> None:
    told: list[Any] = []

    def hear(job: Any, **arguments: Any) -> None:
        told.append(job.id)

    others = _slot_threads()
    with own_tasks():
        task("stubborn")(getattr(coroutines, name))
        signals.job_interrupted.connect(hear)
        worker = Worker(concurrency=1, grace_period=0)
        worker.start()
        job = add_job("stubborn")
        assert coroutines.has_begun.wait(60)
        assert worker.stop() is False
        wait_until(lambda: _slot_threads() <= others)
        signals.job_interrupted.disconnect(hear)
    assert told == [job.id], "once, whoever saw it"


def around(get_result: Any) -> Any:
    """Middleware that only async code could be."""

    async def middleware(job: Any) -> Any:
        return await get_result(job)

    return middleware


def test_job_inside_async_middleware__that_ends_in_the_last_second_has_ended(
    gate: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel = EventLoop.cancel

    def cancel_and_let_end(loop: EventLoop) -> None:
        cancel(loop)
        gate.may_end.set()

    monkeypatch.setattr(EventLoop, "cancel", cancel_and_let_end)
    monkeypatch.setattr(shutdown, "CLEANUP_TIMEOUT", 30.0)
    worker = Worker(concurrency=1, grace_period=0, middleware=[f"{__name__}.around"])
    worker.start()
    add_job("wait")
    gate.wait()
    worker.stop()
    assert not Job.objects.exists(), "it was given back, to be run again"


def test_job_inside_async_middleware__that_does_not_end_is_given_back(gate: Gates) -> None:
    worker = Worker(concurrency=1, grace_period=0, middleware=[f"{__name__}.around"])
    worker.start()
    add_job("wait")
    gate.wait()
    assert worker.stop() is False
    given_back = Job.objects.get()
    assert (given_back.locked_by, given_back.attempts, given_back.last_error) == (None, 0, None)


def test_stop__waits_for_plain_tasks_no_longer_than_the_grace_period(
    gate: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last second is for coroutines, which are told that they are cancelled."""
    monkeypatch.setattr(shutdown, "CLEANUP_TIMEOUT", 1000.0)
    worker = Worker(concurrency=1, grace_period=0)
    worker.start()
    add_job("wait")
    gate.wait()
    assert worker.stop() is False


async def push(customer: int) -> None:
    raise ValueError(f"no customer {customer}")


def notify(payload: dict[str, list[int]]) -> list[Any]:
    return [push(customer) for customer in payload["customers"]]


def test_awaitables_that_failed__keep_their_job_with_every_error() -> None:
    with own_tasks(notify):
        add_job("notify", {"customers": [1, 2, 3]})
        run_once()
    job = Job.objects.get()
    assert (job.payload, job.attempts) == ({"customers": [1, 2, 3]}, 1)
    assert all(f"ValueError: no customer {customer}" in str(job.last_error) for customer in (1, 2, 3))


def decrypting(get_result: Any) -> Any:
    return lambda job: get_result(replace(job, payload=[{"card": 1}, {"card": 2}]))


def charge(payload: list[Any]) -> list[Any]:
    return [None, ValueError("refused")]


@pytest.mark.parametrize(
    ("payload", "kept"), [({"enc": "W3si"}, {"enc": "W3si"}), (["first", "second"], ["second"]), (["all"], ["all"])]
)
def test_rewritten_payload__is_never_stored(payload: Any, kept: Any) -> None:
    with own_tasks(charge):
        add_job("charge", payload)
        run_once(middleware=[f"{__name__}.decrypting"])
    assert Job.objects.get().payload == kept


@pytest.mark.parametrize(
    ("call", "way_out"),
    [
        (untyped(run_once, processes=3), r"run_once\(processes=...\): expected 1, .* runworker --processes"),
        (untyped(run_worker, processes=2), r"run_worker\(processes=...\): expected 1, "),
        (untyped(Worker, processes=2), r"Worker\(processes=...\): expected 1, "),
        (untyped(Worker, database="default"), r"Worker\(database=...\): expected databases=\[...\]"),
        (untyped(run_once, crontab="* * * * * note"), r"run_once\(crontab=...\): .* Use run_worker\(\) or Worker"),
    ],
)
def test_settings_that_code_cannot_have_kept__are_refused_with_the_way_out(call: Any, way_out: str) -> None:
    with pytest.raises(ConfigurationError, match=way_out):
        call()


def test_one_process__may_be_asked_for(settings: Any) -> None:
    assert run_once(processes=1) == 0
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"PROCESSES": 4}
    assert run_once() == 0


def test_djangos_connection__is_left_as_it_was() -> None:
    connections["default"].close()
    assert run_once() == 0
    assert connections["default"].connection is None
    connections["default"].ensure_connection()
    before = connections["default"].connection
    assert run_once() == 0
    assert connections["default"].connection is before


def test_coroutine__may_start_a_worker() -> None:
    async def embed() -> None:
        with Worker():
            pass

    asyncio.run(embed())


@dataclass
class Receipt:
    order: int
    lines: list[Receipt] = field(default_factory=list)


RECEIPTS: list[Receipt] = []


def print_receipt(payload: Receipt) -> None:
    RECEIPTS.append(payload)


def test_dataclass__arrives_as_it_was_given() -> None:
    receipt = Receipt(1, [Receipt(2)])
    with own_tasks(print_receipt):
        assert add_job("print_receipt", receipt).payload == {"order": 1, "lines": [{"order": 2, "lines": []}]}
        run_once()
    assert [receipt] == RECEIPTS


@pytest.fixture
def persistent_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "CONN_MAX_AGE", None)


class Backends:
    """A receiver that uses the ORM, and remembers by which connection."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.has_heard = threading.Semaphore(0)

    def hear(self, **arguments: Any) -> None:
        try:
            with connections["default"].cursor() as cursor:
                cursor.execute("select pg_backend_pid()")
                self.pids.append(cursor.fetchone()[0])
        finally:
            self.has_heard.release()


@pytest.fixture
def backends() -> Iterator[Backends]:
    backends = Backends()
    signals.job_released.connect(backends.hear)
    yield backends
    signals.job_released.disconnect(backends.hear)


@pytest.mark.usefixtures("persistent_connections")
def test_receivers_connection__ends_with_the_worker(
    backends: Backends, raw_connection: Callable[..., RawConnection], wait_until: Callable[..., None]
) -> None:
    add_job("note")
    run_once()
    (pid,) = backends.pids
    left = raw_connection()
    # The server needs a moment to notice.
    wait_until(lambda: not left.execute("select from pg_stat_activity where pid = %s", [pid]).fetchall())


@pytest.mark.usefixtures("persistent_connections")
def test_receivers_connection__that_the_server_ended_is_replaced_before_it_is_used(
    backends: Backends, raw_connection: Callable[..., RawConnection]
) -> None:
    with Worker(concurrency=1):
        add_job("note")
        assert backends.has_heard.acquire(timeout=60)
        # Answers when the process is gone, so its goodbye is on the way.
        raw_connection().execute("select pg_terminate_backend(%s, 60000)", [backends.pids[0]])
        add_job("note")
        assert backends.has_heard.acquire(timeout=60)
    assert len(set(backends.pids)) == 2


def test_options__are_the_settings_that_a_worker_from_code_can_have() -> None:
    given = WorkerOptions.__annotations__ | OnceOptions.__annotations__
    of_the_process = {"database", "max_payload_size", "redact", "admin_statement_timeout"}
    of_migrations = {"migration_lock_timeout", "drop_waiting_jobs"}
    assert set(given) == {field.name for field in fields(conf.Settings)} - of_the_process - of_migrations


def test_exceptions__that_people_catch_are_where_the_functions_are() -> None:
    for name, found in vars(exceptions).items():
        if isinstance(found, type) and issubclass(found, GraphileWorkerError):
            assert getattr(django_graphile_worker, name) is found
            assert name in django_graphile_worker.__all__


def test_worker__says_whether_it_runs_and_shows_no_internals() -> None:
    worker = Worker(concurrency=1)
    with worker:
        was_running = worker.is_running
    assert (was_running, worker.is_running) == (True, False)
    assert [name for name in vars(worker) if not name.startswith("_")] == []
    with StopRequest() as stop:
        public = [name for name in dir(stop) if not name.startswith("_")]
        assert public == ["close", "is_made"]
