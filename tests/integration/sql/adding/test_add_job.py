from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.support.worker_sql import WorkerSql

FUTURE = datetime(2099, 1, 1, tzinfo=UTC)


def refused(worker: WorkerSql, identifier: str | None = "task", **options: Any) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught, worker.connection.transaction():
        worker.add_job(identifier, **options)
    return caught.value


def test_gives_what_is_left_out_its_default(worker: WorkerSql) -> None:
    job = worker.add_job("send_email")

    now = worker.value("select now()")
    task = worker.value("select identifier from {schema}._private_tasks where id = %s", job["task_id"])
    assert task == "send_email"
    assert job == {
        "id": job["id"],
        "job_queue_id": None,
        "task_id": job["task_id"],
        "payload": {},
        "priority": 0,
        "run_at": now,
        "attempts": 0,
        "max_attempts": 25,
        "last_error": None,
        "created_at": now,
        "updated_at": now,
        "key": None,
        "locked_at": None,
        "locked_by": None,
        "revision": 0,
        "flags": None,
        "is_available": True,
    }
    assert worker.jobs() == [job]


def test_takes_its_arguments_by_position_in_the_originals_order(worker: WorkerSql) -> None:
    (job,) = worker.query(
        "select * from {schema}.add_job('task', '[1]', 'queue', '2099-01-01Z', 2, 'key', 7, '{flag}', 'unsafe_dedupe')"
    )

    assert (job["payload"], job["run_at"], job["max_attempts"], job["key"]) == ([1], FUTURE, 2, "key")
    assert (job["priority"], job["flags"]) == (7, {"flag": True})


def test_distinguishes_a_json_null_from_no_payload(worker: WorkerSql) -> None:
    assert worker.add_job("task", payload="null")["payload"] is None
    assert worker.value("select payload::text from {schema}._private_jobs") == "null"


def test_a_null_among_the_flags_is_refused(worker: WorkerSql) -> None:
    assert refused(worker, flags=["a", None]).sqlstate == "22023"


def test_known_names_burn_no_identities(worker: WorkerSql) -> None:
    worker.add_job("known", queue_name="known")
    before = worker.add_job("known", queue_name="known")
    for _ in range(5):
        worker.add_job("known", queue_name="known")
    worker.add_jobs({"identifier": "known", "queue_name": "known"}, {"identifier": "known", "queue_name": "known"})

    after = worker.add_job("new", queue_name="new")
    assert after["task_id"] == before["task_id"] + 1
    assert after["job_queue_id"] == before["job_queue_id"] + 1


class TestLimits:
    @pytest.mark.parametrize(
        ("options", "sqlstate", "message"),
        [
            ({"queue_name": "q" * 129}, "GWBQN", "Job queue name is too long (max length: 128), got 129 characters."),
            ({"job_key": "k" * 513}, "GWBJK", "Job key is too long (max length: 512), got 513 characters."),
            ({"job_key": ""}, "GWBJK", "Job key is empty: expected 1 to 512 characters, or null for no key."),
            ({"max_attempts": 0}, "GWBMA", "Job maximum attempts must be at least 1 and at most 32767, got 0."),
            ({"max_attempts": -1}, "GWBMA", "Job maximum attempts must be at least 1 and at most 32767, got -1."),
            ({"max_attempts": 32768}, "GWBMA", "Job maximum attempts must be at least 1 and at most 32767, got 32768."),
            ({"priority": 32768}, "22003", "Job priority must be between -32768 and 32767, got 32768."),
            ({"priority": -32769}, "22003", "Job priority must be between -32768 and 32767, got -32769."),
            ({"run_at": "infinity"}, "22008", "Job run_at must lie in the years 1 to 9999, got infinity."),
            ({"run_at": "-infinity"}, "22008", "Job run_at must lie in the years 1 to 9999, got -infinity."),
            ({"job_key": "key", "job_key_mode": "nonsense"}, "GWBKM", None),
            ({"job_key_mode": "nonsense"}, "GWBKM", None),
        ],
    )
    def test_say_what_they_are(
        self, worker: WorkerSql, options: dict[str, Any], sqlstate: str, message: str | None
    ) -> None:
        error = refused(worker, **options)

        expected = message or (
            "Invalid job_key_mode value, expected 'replace', 'preserve_run_at' or 'unsafe_dedupe', got 'nonsense'."
        )
        assert (error.sqlstate, error.diag.message_primary) == (sqlstate, expected)
        assert worker.jobs() == []

    def test_apply_to_the_identifier(self, worker: WorkerSql) -> None:
        too_long, missing = refused(worker, "t" * 129), refused(worker, None)

        assert too_long.sqlstate == missing.sqlstate == "GWBID"
        assert too_long.diag.message_primary == "Task identifier is too long (max length: 128), got 129 characters."
        assert missing.diag.message_primary == (
            "Task identifier is missing: expected text of at most 128 characters, got null."
        )

    @pytest.mark.parametrize("run_at", ["0044-03-15 BC", "0001-01-01 12:00Z", "9999-12-31 00:00Z", "12026-01-01"])
    def test_keep_out_times_that_python_cannot_read(self, worker: WorkerSql, run_at: str) -> None:
        assert refused(worker, run_at=run_at).sqlstate == "22008"

    @pytest.mark.parametrize("zone", ["UTC", "Etc/GMT+12", "Etc/GMT-14", "Asia/Kathmandu", "Asia/Manila"])
    @pytest.mark.parametrize("run_at", ["0001-01-02 00:00:00Z", "9999-12-30 23:59:59.999999Z"])
    def test_let_in_only_times_that_python_can_read_in_any_zone(
        self, worker: WorkerSql, zone: str, run_at: str
    ) -> None:
        worker.query("select set_config('timezone', %s, true)", zone)

        assert worker.add_job(run_at=run_at)["run_at"].year in {1, 9999}

    def test_count_characters_and_not_bytes(self, worker: WorkerSql) -> None:
        job = worker.add_job("é" * 128, queue_name="ü" * 128, job_key="ß" * 512, max_attempts=32767, priority=-32768)

        assert (job["key"], job["max_attempts"], job["priority"]) == ("ß" * 512, 32767, -32768)


class TestReplacingByKey:
    def test_leaves_a_permanently_failed_job_alone__but_takes_its_key(self, worker: WorkerSql) -> None:
        failed = worker.add_job("task", job_key="key", max_attempts=1)
        worker.query("update {schema}._private_jobs set attempts = 1, last_error = 'It broke.'")

        added = worker.add_job("task", job_key="key")

        assert added["id"] != failed["id"]
        left = worker.job(failed["id"])
        assert (left["key"], left["attempts"], left["last_error"]) == (None, 1, "It broke.")

    def test_takes_the_new_time_for_a_job_that_has_failed_whatever_the_mode(self, worker: WorkerSql) -> None:
        worker.add_job("task", job_key="key", run_at=FUTURE)
        worker.query("update {schema}._private_jobs set attempts = 1")

        job = worker.add_job("task", job_key="key", job_key_mode="preserve_run_at")

        assert job["run_at"] < FUTURE
        assert job["attempts"] == 0

    def test_leaves_a_running_job_alone__but_takes_its_key_and_its_retries(self, worker: WorkerSql) -> None:
        running = worker.lock(worker.add_job("task", payload={"n": 1}, job_key="key", queue_name="queue")["id"])

        added = worker.add_job("other", payload={"n": 2}, job_key="key")

        assert added["id"] != running["id"]
        assert (added["payload"], added["key"], added["revision"], added["attempts"]) == ({"n": 2}, "key", 0, 0)
        left = worker.job(running["id"])
        changed = {"key": None, "attempts": 25, "updated_at": left["updated_at"]}
        assert left == running | changed
        # Workers of earlier versions recognise a cancelled job by this.
        assert left["updated_at"] > left["locked_at"]

    def test_marks_a_running_job_as_cancelled__even_when_it_was_locked_by_a_clock_ahead(
        self, worker: WorkerSql
    ) -> None:
        running = worker.lock(worker.add_job(job_key="key")["id"], ago="-1 hour")

        worker.add_job(job_key="key")

        left = worker.job(running["id"])
        assert left["updated_at"] == left["locked_at"] + timedelta(microseconds=1)

    def test_goes_on_when_the_revision_can_be_counted_no_further(self, worker: WorkerSql) -> None:
        worker.add_job(job_key="key")
        worker.query("update {schema}._private_jobs set revision = 2147483647")

        assert worker.add_job(job_key="key")["revision"] == 1
        worker.query("update {schema}._private_jobs set revision = 2147483647")
        assert worker.add_job(job_key="key", job_key_mode="unsafe_dedupe")["revision"] == 1


class TestMergingArrays:
    @pytest.mark.parametrize(
        ("existing", "added", "merged"),
        [
            ("[1]", "[2]", [1, 2]),
            ("[]", "[2]", [2]),
            ("[1]", "[]", [1]),
            ("[]", "[]", []),
            ('[{"id": 42}]', '[{"id": 67}]', [{"id": 42}, {"id": 67}]),
            (" \n[ 1 ,2 ]\t", "\r\n[ 3 ] ", [1, 2, 3]),
            ('["]"]', '["["]', ["]", "["]),
            ("[[]]", "[[]]", [[], []]),
            ("[ ]", "[ ]", []),
            ('[1, "ü"]', '["€"]', [1, "ü", "€"]),
            ('{"a": 1}', "[2]", [2]),
            ("[1]", '{"b": 2}', {"b": 2}),
            ("[1]", "null", None),
            ('"[1]"', "[2]", [2]),
        ],
    )
    @pytest.mark.parametrize("mode", ["replace", "preserve_run_at"])
    def test_concatenates_two_arrays_and_replaces_the_rest(
        self, worker: WorkerSql, mode: str, existing: str, added: str, merged: Any
    ) -> None:
        worker.add_job(payload=existing, job_key="key")

        assert worker.add_job(payload=added, job_key="key", job_key_mode=mode)["payload"] == merged

    def test_keeps_what_jsonb_would_refuse_or_rewrite(self, worker: WorkerSql) -> None:
        worker.add_job(payload=r'["\u0000", 1.10, {"b": 1, "a": 2, "b": 3}]', job_key="key")
        worker.add_job(payload=r'["\ud800", 1e400]', job_key="key")

        text = worker.value("select payload::text from {schema}._private_jobs")
        assert text == r'["\u0000", 1.10, {"b": 1, "a": 2, "b": 3}, "\ud800", 1e400]'
