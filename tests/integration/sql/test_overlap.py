"""Statements that run on the server while the client goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, ProgrammingError, connection, transaction
from django.utils.functional import lazy
from psycopg.pq import PipelineStatus

from django_graphile_worker import JobSpec, PayloadError, add_jobs, models
from django_graphile_worker.api import add, streams
from django_graphile_worker.exceptions import InvalidJobError
from django_graphile_worker.sql.overlap import copying, overlapping

pytestmark = pytest.mark.django_db(transaction=True)

# Without the tag, the statement would end the mode.
FAILING = "/* gw:add_jobs */ select 1 / 0"


def is_overlapping() -> bool:
    return bool(connection.connection.pgconn.pipeline_status != PipelineStatus.OFF)


def numbers() -> list[int]:
    return [job.payload["n"] for job in models.Job.objects.order_by("id")]


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(add, "SENT_SPECS", 2)
    monkeypatch.setattr(streams, "SENT_SPECS", 2)
    monkeypatch.setattr(streams, "STREAMED_SPECS", 5)


def test_an_error__is_raised_at_the_end_as_djangos() -> None:
    states: list[bool] = []
    with pytest.raises(DatabaseError, match="division by zero"), transaction.atomic():
        with overlapping(connection), connection.cursor() as cursor:
            cursor.execute(FAILING)
            states.append(is_overlapping())
    assert states == [True]
    assert not is_overlapping()
    assert numbers() == []


def test_an_error_of_the_block__is_the_only_one_that_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="of the block"), transaction.atomic():
        with overlapping(connection), connection.cursor() as cursor:
            cursor.execute(FAILING)
            raise ValueError("of the block")
    assert not is_overlapping()
    assert numbers() == []
    assert [record.getMessage() for record in caplog.records if record.name == "psycopg"] == []


def test_a_copy_that_cannot_begin__is_an_error_of_django() -> None:
    with pytest.raises(ProgrammingError, match='"missing" does not exist'), transaction.atomic():
        with copying(connection, "copy missing from stdin") as rows:
            rows.write("1\n")
    assert numbers() == []


def test_wrappers_and_the_log__wait_for_each_statement(django_assert_num_queries: Any) -> None:
    seen: list[str] = []

    def wrapper(execute: Any, sql: str, *rest: Any) -> Any:
        seen.append(sql)
        return execute(sql, *rest)

    with transaction.atomic():
        with connection.execute_wrapper(wrapper), overlapping(connection):
            assert not is_overlapping()
        with django_assert_num_queries(0), overlapping(connection):
            assert not is_overlapping()
    with connection.execute_wrapper(wrapper):
        add_jobs([JobSpec("a")])
    assert sum("gw:add_jobs" in sql for sql in seen) == 1


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("is_list", [True, False])
def test_jobs__are_added_in_order_by_several_statements(is_list: bool) -> None:
    specs = [JobSpec("a", {"n": number}, job_key="k" if number == 6 else None) for number in range(13)]
    if is_list:
        assert [job.payload["n"] for job in add_jobs(specs)] == list(range(13))
    else:
        assert add_jobs(iter(specs), returning=False) == 13
    assert numbers() == list(range(13))


@pytest.mark.usefixtures("pieces")
def test_code_of_the_project__runs_while_no_statement_runs() -> None:
    states: list[bool] = []

    def specs() -> Iterator[JobSpec]:
        for number in range(12):
            states.append(is_overlapping())
            # A server-side cursor, and a statement whose number of rows Django reads.
            assert len(list(models.Job.objects.iterator(chunk_size=1))) == number - number % 5
            assert models.Job.objects.filter(pk=0).count() == 0
            yield JobSpec("a", {"n": number})

    assert add_jobs(specs(), returning=False) == 12
    assert not any(states)
    assert numbers() == list(range(12))


@pytest.mark.usefixtures("pieces")
def test_code_of_the_project_in_a_payload__uses_the_connection_as_usual() -> None:
    add_jobs([JobSpec("a", {"n": "first"})])

    def text() -> str:
        with connection.cursor() as cursor:
            cursor.execute(f"update {models.Job._meta.db_table} set priority = 1")
            return f"{cursor.rowcount} rows, {len(list(models.Job.objects.iterator(chunk_size=1)))} rows"

    specs = (JobSpec("a", {"n": lazy(text, str)()}) for _ in range(4))
    assert add_jobs(specs, returning=False) == 4
    # The first two are sent when the third is encoded.
    assert list[object](numbers()) == ["first", *["1 rows, 1 rows"] * 3, "3 rows, 3 rows"]


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("place", [0, 3, 7, 12])
@pytest.mark.parametrize("returning", [True, False])
def test_a_mistake_anywhere__adds_nothing_and_names_its_place(place: int, returning: bool) -> None:
    bad_payload = [JobSpec("a", {1} if number == place else None) for number in range(13)]
    with pytest.raises(PayloadError, match=rf"^specs\[{place}\]: payload: "):
        add_jobs(iter(bad_payload), returning=returning)
    refused = [JobSpec("a") for _ in range(13)]
    object.__setattr__(refused[place], "priority", 40_000)
    with pytest.raises(InvalidJobError, match=r"^Job priority must be between"):
        add_jobs(iter(refused), returning=returning)
    assert not is_overlapping()
    assert numbers() == []


def test_a_stream__takes_fewer_specs_at_a_time_when_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "FIRST_SPECS", 4)
    monkeypatch.setattr(streams, "STREAMED_CHARACTERS", 1_000)
    waiting: list[int] = []

    def specs() -> Iterator[JobSpec]:
        for number in range(40):
            waiting.append(number - models.Job.objects.count())
            yield JobSpec("a", "x" * (100 if number < 20 else 2_000))

    assert add_jobs(specs(), returning=False) == 40
    assert max(waiting) < 16
    assert max(waiting[30:]) == 0


@pytest.mark.parametrize("wrapped", [str, lambda text: {"a": [text]}], ids=["text", "nested"])
def test_a_stream__takes_few_large_specs_after_many_small_ones(monkeypatch: pytest.MonkeyPatch, wrapped: Any) -> None:
    monkeypatch.setattr(streams, "STREAMED_CHARACTERS", 10_000)
    waiting: list[int] = []

    def specs() -> Iterator[JobSpec]:
        for number in range(1_000):
            waiting.append(number - models.Job.objects.count() if number > 800 else 0)
            yield JobSpec("a", wrapped("x" * (1 if number < 800 else 5_000)))

    assert add_jobs(specs(), returning=False) == 1_000
    # Up to 200 small ones may wait with them.
    assert max(waiting[805:]) < 5


def test_a_stream__takes_few_large_specs_wherever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "FIRST_SPECS", 4_000)
    monkeypatch.setattr(streams, "STREAMED_CHARACTERS", 10_000)
    large: list[int] = []

    def specs() -> Iterator[JobSpec]:
        for number in range(4_000):
            if number % 8 == 1:
                large.append(number - models.Job.objects.count())
            yield JobSpec("a", "x" * (5_000 if number % 8 == 1 else 1))

    assert add_jobs(specs(), returning=False) == 4_000
    # One of four is measured. That none of 80 large ones was measured happens once in ten billion runs.
    assert max(large) < 8 * 80


def test_a_list_with_keys__is_sent_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STREAMED_CHARACTERS", 1_000)
    blocks: list[int] = []

    @contextmanager
    def noted(connection: Any) -> Iterator[None]:
        before = models.Job.objects.count()
        with overlapping(connection):
            yield
        blocks.append(models.Job.objects.count() - before)

    monkeypatch.setattr(streams, "overlapping", noted)
    assert add_jobs([JobSpec("a", "x" * 98, job_key=f"k{number}") for number in range(45)], returning=False) == 45
    assert blocks == [10, 10, 10, 10, 5, 0]
