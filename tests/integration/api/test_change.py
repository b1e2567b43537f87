from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_graphile_worker import (
    InvalidJobError,
    Job,
    JobSpec,
    add_job,
    add_jobs,
    cancel_by_key,
    cancel_jobs,
    complete_jobs,
    force_unlock_workers,
    get_job,
    models,
    permanently_fail_jobs,
    remove_job,
    reschedule_jobs,
    retry_jobs,
)
from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.payloads import RawPayload
from tests.support.factories import make_job
from tests.support.rows import as_job, database_now, query, stored

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


class TestChangingJobs:
    def test_remove_job_removes_and_returns(self) -> None:
        job = add_job("send_email", {"n": 1}, job_key="k", queue_name="mail", flags=["a"])
        removed = remove_job("k")
        assert removed == job
        assert job == removed
        assert isinstance(removed, Job)
        assert removed.was_running is False
        assert not models.Job.objects.exists()

    def test_remove_job_cancels_a_running_job(self) -> None:
        job_id = make_job("send_email", key="k", locked_by="w")
        job = remove_job("k")
        assert job
        assert (job.id, job.key, job.attempts, job.locked_by) == (job_id, None, 25, "w")
        assert job.was_running is True

    @pytest.mark.parametrize("key", [None, 5, ""])
    def test_remove_job_needs_a_key(self, key: Any) -> None:
        with pytest.raises((InvalidTypeError, InvalidJobError), match=r"^job_key: expected"):
            remove_job(key)

    def test_get_job_finds_by_id_and_by_key(self) -> None:
        job = add_job("send_email", {"n": 1}, job_key="k", queue_name="mail", flags=["a"])
        number = add_job("other", job_key=str(job.id))
        assert get_job(job.id) == job
        assert get_job("k") == job
        assert get_job(str(job.id)) == number, "a string is a key, whatever it looks like"

    def test_a_job_stands_for_its_id(self) -> None:
        one, two = add_jobs([JobSpec("a", max_attempts=2), JobSpec("a")])
        assert permanently_fail_jobs(one)[0].id == one.id
        assert get_job(one) == get_job(one.id) != one
        assert [job.id for job in retry_jobs([one])] == [one.id]
        assert {job.id for job in reschedule_jobs((one, two.id), priority=3)} == {one.id, two.id}
        assert cancel_jobs(one).removed == (one.id,)
        assert [job.id for job in complete_jobs(two.id)] == [two.id]

    def test_no_message_has_the_payload_of_a_job(self) -> None:
        job: Any = add_job("a", {"card": "4111"})
        calls: list[Any] = [remove_job, cancel_by_key, lambda value: get_job([value]), lambda value: add_job(value)]  # type: ignore[arg-type]
        for refused in calls:
            with pytest.raises(InvalidTypeError) as error:
                refused(job)
            assert "4111" not in str(error.value)
        with pytest.raises(InvalidTypeError) as error:
            add_job({"card": "4111"})  # type: ignore[arg-type]
        assert "4111" not in str(error.value)
        assert repr(job) == f"<Job {job.id}: a>"

    def test_complete_jobs_deletes_what_is_not_running(self) -> None:
        jobs = add_jobs([JobSpec("a", {"n": 1}), JobSpec("b", queue_name="q")])
        running = make_job("a", locked_by="w")
        completed = complete_jobs([job.id for job in jobs] + [running, 99_999_999])
        assert sorted(completed, key=lambda job: job.id) == jobs
        assert [row.id for row in models.Job.objects.all()] == [running]

    def test_permanently_fail_jobs_uses_up_the_attempts(self) -> None:
        job = add_job("a", max_attempts=3)
        (failed,) = permanently_fail_jobs([job.id], "no\x00t \ud800 today")
        assert (failed.attempts, failed.last_error) == (
            3,
            "no\\x00t \\ud800 today\n\nNot tried again after attempt 0 of 3.",
        )
        assert failed == as_job(stored(job))
        assert permanently_fail_jobs([job.id]) == [], "it has failed already, and keeps its error"
        (failed,) = permanently_fail_jobs([add_job("a").id])
        assert failed.last_error == "Manually marked as failed\n\nNot tried again after attempt 0 of 25."

    def test_reschedule_jobs_makes_a_failed_job_runnable(self) -> None:
        spent: dict[str, Any] = {"attempts": 3, "max_attempts": 3, "last_error": "KeyError: 'x'"}
        timed, raised, counted, untimed = (make_job("a", **spent) for _ in range(4))
        (moved,) = reschedule_jobs([timed], run_at=NOW)
        assert (moved.attempts, moved.max_attempts, moved.last_error) == (0, 3, "KeyError: 'x'")
        (moved,) = reschedule_jobs([raised], run_at=NOW, max_attempts=5)
        assert (moved.attempts, moved.max_attempts) == (3, 5), "it has attempts left"
        (moved,) = reschedule_jobs([counted], run_at=NOW, attempts=2)
        assert moved.attempts == 2
        (moved,) = reschedule_jobs([untimed], priority=5)
        assert (moved.attempts, moved.priority) == (3, 5), "another priority does not retry it"

    def test_an_error_message_is_text(self) -> None:
        with pytest.raises(InvalidTypeError) as refused:
            permanently_fail_jobs([1], ValueError("no"))  # type: ignore[arg-type]
        assert str(refused.value) == "error_message: expected a string, got ValueError('no')."

    def test_reschedule_jobs_changes_what_is_given(self) -> None:
        job = add_job("a", priority=3, max_attempts=4)
        (moved,) = reschedule_jobs([job.id], run_at=timedelta(hours=1))
        assert (moved.run_at, moved.priority, moved.max_attempts) == (database_now() + timedelta(hours=1), 3, 4)
        (moved,) = reschedule_jobs([job.id], run_at=NOW, priority=-1, attempts=2, max_attempts=9)
        assert (moved.run_at, moved.priority, moved.attempts, moved.max_attempts) == (NOW, -1, 2, 9)
        assert moved == as_job(stored(job))

    def test_reschedule_jobs_reads_a_time_as_text(self) -> None:
        job = add_job("a")
        (moved,) = reschedule_jobs([job.id], run_at="2026-06-01T12:00:00Z")
        assert moved.run_at == NOW
        with pytest.raises(InvalidJobError, match="'tomorrow' is not a time like"):
            reschedule_jobs([job.id], run_at="tomorrow")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"priority": 40_000}, "priority: expected a whole number from -32768 to 32767, got 40000."),
            ({"attempts": -1}, "attempts: expected a whole number from 0 to 32767, got -1."),
            ({"max_attempts": 0}, "max_attempts: expected a whole number from 1 to 32767, got 0."),
        ],
    )
    def test_reschedule_jobs_checks_its_values(
        self, options: dict[str, Any], message: str, django_assert_num_queries: Any
    ) -> None:
        with django_assert_num_queries(0), pytest.raises(InvalidJobError) as refused:
            reschedule_jobs([1], **options)
        assert str(refused.value) == message

    @pytest.mark.parametrize("function", [complete_jobs, permanently_fail_jobs, reschedule_jobs])
    @pytest.mark.parametrize(
        ("job_ids", "message"),
        [
            (5.5, "job_ids: expected a list of jobs or job ids, got float."),
            ("12", "job_ids: expected a list of jobs or job ids, got str."),
            ([{"card": "4111"}], "job_ids: expected jobs or job ids, got dict."),
            (
                [1, "2"],
                "job_ids: expected a whole number from 1 to 9223372036854775807, got '2' (str).",
            ),
            ([2**63], "job_ids: expected a whole number from 1 to 9223372036854775807, got 9223372036854775808."),
        ],
    )
    def test_job_ids_are_checked(self, function: Callable[..., Any], job_ids: Any, message: str) -> None:
        with pytest.raises((InvalidTypeError, InvalidJobError)) as refused:
            function(job_ids)
        assert str(refused.value) == message

    @pytest.mark.parametrize("function", [complete_jobs, permanently_fail_jobs, reschedule_jobs])
    def test_no_ids_are_no_statement(self, function: Callable[..., Any], django_assert_num_queries: Any) -> None:
        with django_assert_num_queries(0):
            assert function(iter(())) == []

    @pytest.mark.parametrize("worker_ids", ["gone", 5, [5]])
    def test_worker_ids_are_checked(self, worker_ids: Any) -> None:
        with pytest.raises(InvalidTypeError, match=r"^worker_ids: expected"):
            force_unlock_workers(worker_ids)

    def test_jobs_that_python_cannot_read_can_be_failed_and_completed(self) -> None:
        job_id = make_job("a")
        digits = "9" * 5000
        query(
            f"update {models.Job._meta.db_table} set payload = %s, run_at = '-infinity',"
            " created_at = '4713-01-01 BC', updated_at = '294276-01-01', flags = '[1]' returning 1",
            digits,
        )
        (failed,) = permanently_fail_jobs([job_id])
        assert isinstance(failed.payload, RawPayload)
        assert (failed.run_at.year, failed.created_at.year, failed.flags) == (1, 1, frozenset())
        assert len(complete_jobs([job_id])) == 1
