"""Progress: seen while the job runs, written at most once a second, and never without the last report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import connection

from django_graphile_worker import add_job, conf, result
from django_graphile_worker.sql import progress as sql_progress
from django_graphile_worker.sql.progress import Progress
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.reporting import progress_writer
from django_graphile_worker.worker.reporting.progress_writer import ProgressWriter
from tests.support.factories import make_job
from tests.support.rows import in_quotes, query
from tests.support.slot import TOKEN, make_claim
from tests.support.stepped_worker import build, own_tasks, run_all, stepped_workers

pytestmark = pytest.mark.django_db(transaction=True)


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Writer:
    """A writer without a thread, and the values that it has written."""

    def __init__(self, schema: str) -> None:
        self.clock = Clock()
        worker = Mock()
        worker.database.return_value = Database("default", conf.current(), part="progress")
        worker.now.return_value = None
        self.service = ProgressWriter(worker, clock=self.clock)
        self.service.start = lambda *, after=0.0: None  # type: ignore[method-assign]
        self._schema = in_quotes(schema)

    def report(self, job_id: int, done: float, message: str = "") -> None:
        claim = make_claim(id=job_id)
        self.service.report(claim, Progress(done=done, total=9.0, message=message))

    def stored(self) -> dict[int, float]:
        return dict(query(f"select job_id, done from {self._schema}._private_progress"))


@pytest.fixture
def writer(worker_schema: str) -> Iterator[Writer]:
    made = Writer(worker_schema)
    yield made
    made.service.close()


def test_reports__are_written_once_a_second(writer: Writer) -> None:
    job_id = make_job(locked_by=TOKEN, attempts=1)
    for done in range(4):
        writer.report(job_id, done)
    writer.service.step()
    assert writer.stored() == {job_id: 3}
    writer.report(job_id, 4)
    writer.clock.now += 0.4
    assert writer.service.step() == pytest.approx(0.6)
    assert writer.stored() == {job_id: 3}
    writer.clock.now += 0.6
    writer.service.step()
    assert writer.stored() == {job_id: 4}


def test_report_that_comes_while_another_is_written__is_written_a_second_later(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = make_job(locked_by=TOKEN, attempts=1)
    write = sql_progress.write

    def write_slowly(*args: Any, **kwargs: Any) -> None:
        write(*args, **kwargs)
        writer.report(job_id, 2)

    writer.report(job_id, 1)
    with monkeypatch.context() as patched:
        patched.setattr(sql_progress, "write", write_slowly)
        assert writer.service.step() == pytest.approx(progress_writer.INTERVAL)
    assert writer.stored() == {job_id: 1}
    writer.clock.now += progress_writer.INTERVAL
    writer.service.step()
    assert writer.stored() == {job_id: 2}


def test_task_that_reports_all_the_time__moves_its_bar_all_the_time(
    wait_until: Callable[..., None], worker_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_writer, "INTERVAL", 0.02)
    may_end = threading.Event()

    def count(payload: Any, helpers: Any) -> None:
        done = 0
        while not may_end.wait(0.001):
            done += 1
            helpers.progress(done)

    def shown() -> float:
        rows: list[tuple[float]] = query(f"select done from {in_quotes(worker_schema)}._private_progress")
        return sum(done for (done,) in rows)

    with stepped_workers(count) as make:
        job = add_job("count")
        worker = make()
        worker.fetcher.step()
        try:
            for _ in range(20):
                before = shown()
                wait_until(lambda before=before: shown() > before, timeout=progress_writer.IDLE_TIME / 2)
        finally:
            may_end.set()
        run_all(worker, wait_until)
        wait_until(lambda: result(job) is None)
        worker.progress.stop()
        worker.progress.join(60)


def test_last_report__is_written_before_the_end_of_the_run(writer: Writer, wait_until: Callable[..., None]) -> None:
    job_id = make_job(locked_by=TOKEN, attempts=1)
    writer.report(job_id, 1)
    writer.service.step()
    writer.report(job_id, 9)
    ending = threading.Thread(target=writer.service.finish, args=[make_claim(id=job_id)])
    ending.start()
    wait_until(lambda: writer.service.step() is not None and not ending.is_alive())
    assert writer.stored() == {job_id: 9}


def test_end_of_a_run__does_not_wait_for_a_writer_that_cannot_write(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_writer, "FINISH_TIMEOUT", 0.01)
    writer.report(make_job(locked_by=TOKEN), 1)
    writer.service.finish(make_claim(id=1))
    writer.service.finish(make_claim(id=2))


def test_lost_claim__changes_nothing(writer: Writer) -> None:
    job_id = make_job(locked_by="another/7", attempts=2)
    writer.report(job_id, 5)
    writer.service.step()
    assert writer.stored() == {}


def test_ended_jobs__leave_nothing_behind(writer: Writer, worker_schema: str) -> None:
    kept, retried, ended = (make_job(locked_by=TOKEN, attempts=1) for _ in range(3))
    for job_id in (kept, retried, ended):
        writer.report(job_id, 1)
    writer.service.step()
    schema = in_quotes(worker_schema)
    with connection.cursor() as cursor:
        cursor.execute(f"delete from {schema}._private_jobs where id in (%s, %s)", [kept, ended])
        cursor.execute(
            f"insert into {schema}._private_results (job_id, task_identifier, status, added_at, expires_at)"
            " values (%s, 'task', 1, now(), now() + interval '1 day')",
            [kept],
        )
    writer.service.settled([kept, retried, ended])
    writer.service.step()
    assert writer.stored() == {kept: 1, retried: 1}


def test_worker__shows_progress_while_the_transaction_of_the_task_is_open(
    wait_until: Callable[..., None], worker_schema: str
) -> None:
    may_end, seen = threading.Event(), threading.Event()

    def export(payload: Any, helpers: Any) -> None:
        helpers.progress(3, 7, "page 3 of 7")
        seen.set()
        assert may_end.wait(60)
        for page in range(4, 8):
            helpers.progress(page, 7, f"page {page} of 7")

    with own_tasks(export, atomic=True) as registry:
        job = add_job("export")
        runner = build(registry).prepare()
        runner.worker.releaser.start()
        runner.worker.fetcher.step()
        assert seen.wait(60)

        def shown() -> Any:
            found = result(job)
            return found and found.progress and found.progress.message

        wait_until(lambda: shown() == "page 3 of 7")
        may_end.set()
        wait_until(lambda: result(job) is None)
        wait_until(lambda: query(f"select * from {in_quotes(worker_schema)}._private_progress") == [])
        runner.worker.progress.stop()
        runner.worker.progress.join(60)
        runner.worker.releaser.stop()
        runner.worker.releaser.join(60)
        runner.close()


def test_worker__without_reports_starts_no_thread_and_opens_no_connection_for_them(
    wait_until: Callable[..., None],
) -> None:
    with stepped_workers(lambda_free_task) as make:
        add_job("lambda_free_task")
        worker = make()
        run_all(worker, wait_until)
        assert worker.progress._thread is None
        assert worker.progress._database.current is None


def lambda_free_task(payload: Any, helpers: Any) -> None:
    assert helpers.job.attempts == 1
