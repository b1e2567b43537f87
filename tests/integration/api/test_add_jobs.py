from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils.functional import lazy

from django_graphile_worker import (
    JobSpec,
    PayloadError,
    add_job,
    add_jobs,
    models,
)
from django_graphile_worker.api import add
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.signals import pre_add_jobs
from django_graphile_worker.sql import adding
from tests.support.rows import as_job, database_now, stored

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


class TestAddJobs:
    def test_jobs_come_back_in_the_order_of_their_specs(self) -> None:
        specs = [JobSpec("send_email", {"n": number}, priority=-number) for number in range(50)]
        jobs = add_jobs(specs)
        assert [job.payload["n"] for job in jobs] == list(range(50))
        assert [job.id for job in jobs] == sorted(job.id for job in jobs)
        assert jobs == [as_job(stored(job)) for job in jobs]

    def test_every_option_of_a_spec_is_honoured(self) -> None:
        (job,) = add_jobs(
            [
                JobSpec(
                    "send_email",
                    {"a": "ü"},
                    queue_name="mail",
                    run_at=NOW,
                    max_attempts=3,
                    job_key="k",
                    priority=4,
                    flags=["a", 'b"\\'],
                )
            ]
        )
        assert job == as_job(stored(job))
        assert (job.queue_name, job.run_at, job.max_attempts, job.key) == ("mail", NOW, 3, "k")
        assert (job.priority, job.flags, job.payload) == (4, frozenset({"a", 'b"\\'}), {"a": "ü"})

    def test_a_timedelta_counts_from_the_databases_now(self) -> None:
        delays = [timedelta(days=1, microseconds=1), timedelta(0), -timedelta(hours=1), timedelta(microseconds=3)]
        jobs = add_jobs(JobSpec("send_email", run_at=delay) for delay in delays)
        assert [job.run_at - database_now() for job in jobs] == delays

    def test_nothing_is_added_from_nothing(self, django_assert_num_queries: Any) -> None:
        with django_assert_num_queries(0):
            assert add_jobs([]) == []

    def test_it_is_one_statement(self, django_assert_num_queries: Any) -> None:
        specs = [JobSpec("send_email", job_key=f"k{number}" if number % 2 else None) for number in range(100)]
        with django_assert_num_queries(1):
            add_jobs(specs)

    def test_each_spec_has_its_own_job_key_mode(self) -> None:
        for key in "abc":
            add_job("send_email", {"old": key}, job_key=key, run_at=NOW)
        later = NOW + timedelta(days=1)
        jobs = add_jobs(
            [
                JobSpec("send_email", {"n": 0}, run_at=later),
                JobSpec("send_email", {"n": 1}, job_key="a", run_at=later),
                JobSpec("send_email", {"n": 2}, job_key="b", run_at=later, job_key_mode="preserve_run_at"),
                JobSpec("send_email", {"n": 3}, run_at=later),
                JobSpec("send_email", {"n": 4}, job_key="c", run_at=later, job_key_mode="unsafe_dedupe"),
                JobSpec("send_email", {"n": 5}, run_at=later),
                JobSpec("send_email", {"n": 6}, job_key="d", run_at=later, job_key_mode="unsafe_dedupe"),
            ]
        )
        assert [(job.payload, job.run_at) for job in jobs] == [
            ({"n": 0}, later),
            ({"n": 1}, later),
            ({"n": 2}, NOW),
            ({"n": 3}, later),
            ({"old": "c"}, NOW),
            ({"n": 5}, later),
            ({"n": 6}, later),
        ]
        assert jobs == [as_job(stored(job)) for job in jobs]

    def test_a_key_is_not_added_twice_if_a_later_one_fails(self) -> None:
        """Several statements are one transaction, also where Django has none."""
        specs = [JobSpec("a", job_key=key, job_key_mode="unsafe_dedupe") for key in ("k", "l")]
        object.__setattr__(specs[1], "priority", 40_000)
        with pytest.raises(InvalidJobError):
            add_jobs(specs)
        assert not models.Job.objects.exists()

    @pytest.mark.parametrize("returning", [True, False])
    def test_all_or_none(self, returning: bool) -> None:
        specs = [JobSpec("send_email"), JobSpec("send_email", {1})]
        with pytest.raises(PayloadError) as refused:
            add_jobs(specs, returning=returning)
        assert (
            str(refused.value) == "specs[1]: payload: expected a value that JSON can hold, got set (pass a list) at $."
        )
        assert refused.value.path == "$"
        assert not models.Job.objects.exists()

    @pytest.mark.parametrize(
        ("specs", "message"),
        [
            (["send_email"], "specs[0]: expected a JobSpec, got str."),
            ([JobSpec("a"), None], "specs[1]: expected a JobSpec, got NoneType."),
            ([{"password": "hunter2"}], "specs[0]: expected a JobSpec, got dict."),
            (5, "specs: expected a list, or another iterable, of JobSpec, got int."),
            (JobSpec("a", "hunter2"), "specs: expected a list, or another iterable, of JobSpec, got JobSpec."),
        ],
    )
    def test_only_specs_are_specs(self, specs: Any, message: str) -> None:
        with pytest.raises(InvalidTypeError) as refused:
            add_jobs(specs)
        assert str(refused.value) == message

    def test_a_stream_is_added_in_pieces_and_forgotten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(adding, "MAX_UNKEYED", 3)
        waiting = 0
        most_waiting = 0

        def specs() -> Iterator[JobSpec]:
            nonlocal waiting, most_waiting
            for number in range(10):
                waiting = number - models.Job.objects.count()
                most_waiting = max(most_waiting, waiting)
                yield JobSpec("send_email", {"n": number})

        assert add_jobs(specs(), returning=False) == 10
        assert most_waiting == 2
        assert [job.payload["n"] for job in models.Job.objects.order_by("id")] == list(range(10))

    def test_a_stream_that_breaks_adds_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(adding, "MAX_UNKEYED", 2)

        def specs() -> Iterator[JobSpec]:
            yield from [JobSpec("send_email")] * 5
            raise OSError("the file ended early")

        with pytest.raises(OSError, match="ended early"):
            add_jobs(specs(), returning=False)
        assert not models.Job.objects.exists()

    def test_a_large_list_is_cut_and_still_in_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(add, "LISTED_SPECS", 4)
        jobs = add_jobs([JobSpec("a", {"n": number}, job_key=f"k{number}") for number in range(10)])
        assert [job.payload["n"] for job in jobs] == list(range(10))


@pytest.mark.django_db(transaction=True)
class TestCodeOfTheProject:
    @pytest.fixture(autouse=True)
    def pieces(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(adding, "MAX_UNKEYED", 5)

    def test_in_an_iterable_uses_the_connection_as_usual(self) -> None:
        def specs() -> Iterator[JobSpec]:
            for number in range(12):
                # A server-side cursor, and a statement whose number of rows Django reads.
                assert len(list(models.Job.objects.iterator(chunk_size=1))) == number // 5 * 5
                assert models.Job.objects.filter(pk=0).count() == 0
                yield JobSpec("a", {"n": number})

        assert add_jobs(specs(), returning=False) == 12
        assert numbers() == list(range(12))

    @pytest.mark.parametrize("way", ["cursor", "callproc", "driver", "stream", "is_usable"])
    @pytest.mark.parametrize("returning", [True, False])
    def test_in_a_payload_uses_the_connection_as_usual(self, way: str, returning: bool) -> None:
        def used() -> str:
            if way == "driver":
                return str(connection.connection.execute("select 1").fetchone()[0])
            if way == "is_usable":
                return str(int(connection.is_usable()))
            with connection.cursor() as cursor:
                if way == "callproc":
                    cursor.callproc("abs", [-1])
                elif way == "stream":
                    return str(next(iter(cursor.cursor.stream("select 1")))[0])
                else:
                    cursor.execute(f"update {models.Job._meta.db_table} set priority = 1 where payload ->> 'n' = '0'")
                    return str(cursor.rowcount)
                return str(cursor.fetchone()[0])

        specs = [JobSpec("a", {"n": lazy(used, str)() if number == 12 else number}) for number in range(14)]
        add_jobs(specs, returning=returning)
        # The cursor updates the first job, and finds it only if the jobs before its own are added.
        assert numbers() == [*range(12), "1", 13]


@pytest.mark.parametrize("place", [0, 3, 7, 12])
@pytest.mark.parametrize("returning", [True, False])
def test_an_error_anywhere__adds_nothing_and_names_its_place(
    place: int, returning: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adding, "MAX_UNKEYED", 2)
    bad_payload = [JobSpec("a", {1} if number == place else None) for number in range(13)]
    with pytest.raises(PayloadError, match=rf"^specs\[{place}\]: payload: "):
        add_jobs(iter(bad_payload), returning=returning)
    refused = [JobSpec("a") for _ in range(13)]
    object.__setattr__(refused[place], "max_attempts", 0)
    with pytest.raises(InvalidJobError, match=r"^Job maximum attempts must be at least 1"):
        add_jobs(iter(refused), returning=returning)
    assert numbers() == []


class TestMemory:
    """However long a stream is, few of its specs are in memory."""

    @pytest.mark.parametrize("is_received", [False, True])
    def test_holds_no_more_characters_than_a_statement(
        self, monkeypatch: pytest.MonkeyPatch, is_received: bool
    ) -> None:
        monkeypatch.setattr(add, "STREAMED_CHARACTERS", 10_000)
        monkeypatch.setattr(add, "RECEIVED_SPECS", 10)
        waiting: list[int] = []

        def specs() -> Iterator[JobSpec]:
            for number in range(1_200):
                waiting.append(number - models.Job.objects.count() if number > 800 else 0)
                yield JobSpec("a", "x" * (5_000 if number > 800 else 1))

        with receiving() if is_received else nullcontext():
            assert add_jobs(specs(), returning=False) == 1_200
        # The last small ones may wait with the first large ones.
        assert max(waiting[820:]) < (14 if is_received else 4)


@contextmanager
def receiving() -> Iterator[None]:
    def receive(**kwargs: Any) -> None: ...

    pre_add_jobs.connect(receive)
    try:
        yield
    finally:
        pre_add_jobs.disconnect(receive)


def numbers() -> list[Any]:
    return [job.payload["n"] for job in models.Job.objects.order_by("id")]
