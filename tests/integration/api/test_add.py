from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.utils import timezone as django_timezone

from django_graphile_worker import (
    InvalidJobError,
    JobSpec,
    PayloadError,
    add_job,
    add_jobs,
    cleanup,
    force_unlock_workers,
    models,
    permanently_fail_jobs,
    remove_job,
    reschedule_jobs,
)
from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.jobs import JobDefaults
from django_graphile_worker.payloads import RawPayload
from django_graphile_worker.registry import Task
from tests.support.factories import make_job
from tests.support.rows import as_job, query, stored

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


class TestAddJob:
    def test_the_job_returned_is_the_row_stored(self) -> None:
        job = add_job(
            "send_email",
            {"to": "ä@example.com", "at": NOW, "lines": [1, 2.5, None]},
            queue_name="mail",
            run_at=NOW,
            max_attempts=3,
            job_key="order:1",
            priority=-7,
            flags={"slow", "eu"},
        )
        assert job == as_job(stored(job))
        assert job.payload == {"to": "ä@example.com", "at": "2026-06-01T12:00:00Z", "lines": [1, 2.5, None]}
        assert (job.queue_name, job.run_at, job.max_attempts, job.key) == ("mail", NOW, 3, "order:1")
        assert (job.priority, job.flags) == (-7, frozenset({"slow", "eu"}))

    def test_payloads_are_stored_as_compact_text(self) -> None:
        job = add_job("send_email", {"a": [1, "ü"]})
        assert query(f"select payload::text from {models.Job._meta.db_table} where id = %s", job.id) == [
            ('{"a":[1,"ü"]}',)
        ]

    @pytest.mark.parametrize("payload", [[], 0, False, "", {}, [1], "text"])
    def test_every_json_value_but_none_is_a_payload(self, payload: Any) -> None:
        job = add_job("send_email", payload)
        assert job.payload == stored(job).payload == payload

    def test_a_day_has_24_hours__whatever_the_sessions_time_zone(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("set local time zone 'Europe/Berlin'")
        for days in (100, 200, 300):
            add_job("send_email", run_at=timedelta(days=days))
        add_jobs(JobSpec("send_email", run_at=timedelta(days=days)) for days in (100, 200, 300))
        table = models.Job._meta.db_table
        waits = query(f"select (extract(epoch from run_at - now()) / 86400)::float8 from {table} order by id")
        assert [days for (days,) in waits] == [100, 200, 300] * 2

    def test_a_naive_time_is_warned_about_and_taken_in_the_default_zone(self, settings: Any) -> None:
        settings.TIME_ZONE = "Asia/Tokyo"
        with (
            django_timezone.override("America/New_York"),
            pytest.warns(RuntimeWarning) as warned,
        ):
            job = add_job("send_email", run_at=datetime(2026, 6, 1, 21, 0))  # noqa: DTZ001
        assert str(warned[0].message) == (
            "run_at received a naive datetime (2026-06-01 21:00:00) while time zone support is active."
        )
        assert job.run_at == NOW

    @pytest.mark.parametrize(
        "add",
        [
            lambda when: add_job("send_email", run_at=when),
            lambda when: add_jobs([JobSpec("send_email", run_at=when)]),
            lambda when: add_jobs((JobSpec("send_email", run_at=when) for _ in range(1)), returning=False),
            lambda when: Task(print, "send_email", defaults=JobDefaults()).add_job(run_at=when),
            lambda when: reschedule_jobs([1], run_at=when),
        ],
    )
    def test_the_warning_of_a_naive_time_points_at_the_line_that_gave_it(self, add: Any) -> None:
        with pytest.warns(RuntimeWarning, match="naive datetime") as warned:
            add(datetime(2026, 6, 1, 21, 0))  # noqa: DTZ001
        assert [warning.filename for warning in warned] == [__file__]

    @pytest.mark.filterwarnings("error")
    def test_without_time_zone_support_times_are_naive_and_local(self, settings: Any) -> None:
        settings.USE_TZ = False
        settings.TIME_ZONE = "Asia/Tokyo"
        connection.ensure_timezone()
        try:
            local = datetime(2026, 6, 1, 21, 0)  # noqa: DTZ001
            job = add_job("send_email", run_at=local)
            assert job.run_at == local
            assert add_jobs([JobSpec("send_email", run_at=local)])[0].run_at == local
            assert query(f"select run_at = %s from {models.Job._meta.db_table}", NOW.isoformat()) == [(True,)] * 2
        finally:
            settings.USE_TZ = True
            settings.TIME_ZONE = "UTC"
            connection.ensure_timezone()

    def test_hostile_names_are_only_names(self) -> None:
        hostile = "'; drop table x; -- %s %(a)s :SCHEMA \\ \" \n \u202e"
        job = add_job(hostile, {hostile: hostile}, queue_name=hostile, job_key=hostile, flags=[hostile])
        assert job == as_job(stored(job))
        (batched,) = add_jobs([JobSpec(hostile, {hostile: hostile}, queue_name=hostile, flags=[hostile])])
        assert batched == as_job(stored(batched))

    @pytest.mark.parametrize(
        ("options", "kind"),
        [
            ({"payload": {1, 2}}, PayloadError),
            ({"priority": 40_000}, InvalidJobError),
            ({"queue_name": 5}, InvalidTypeError),
            ({"run_at": "tomorrow"}, InvalidTypeError),
            ({"using": 5}, InvalidTypeError),
        ],
    )
    def test_bad_input_does_not_reach_the_database(
        self, options: dict[str, Any], kind: type[Exception], django_assert_num_queries: Any
    ) -> None:
        with django_assert_num_queries(0), pytest.raises(kind):
            add_job("send_email", **options)

    def test_it_is_one_statement(self, django_assert_num_queries: Any) -> None:
        with django_assert_num_queries(1) as captured:
            add_job("send_email", {"a": 1}, queue_name="mail", job_key="k", run_at=timedelta(1), flags=["a"])
        assert captured.captured_queries[0]["sql"].startswith("/* gw:add_job */")

    def test_a_payload_is_limited_by_the_setting(self, settings: Any) -> None:
        settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "MAX_PAYLOAD_SIZE": 10}
        add_job("send_email", "x" * 8)
        with pytest.raises(PayloadError, match="11 bytes of JSON exceed the limit of 10"):
            add_job("send_email", "x" * 9)


@pytest.fixture
def server_side_binding() -> Iterator[None]:
    """Use a connection whose parameters are bound by the server."""
    usual = connections["default"]
    connections["default"] = bound = connections.create_connection("default")
    bound.settings_dict = usual.settings_dict | {
        "OPTIONS": usual.settings_dict["OPTIONS"] | {"server_side_binding": True}
    }
    yield
    bound.close()
    connections["default"] = usual


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("notify", [True, False])
@pytest.mark.usefixtures("server_side_binding")
def test_parameters_may_be_bound_by_the_server(notify: bool, settings: Any) -> None:
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "NOTIFY": notify}
    variants: list[dict[str, Any]] = [
        {},
        {"run_at": NOW, "flags": ["a"], "queue_name": "q"},
        {"run_at": timedelta(1), "priority": 3},
    ]
    for options in variants:
        job = add_job("a", {"n": 1}, max_attempts=2, job_key="k", **options)
        assert job == as_job(stored(job))
    assert add_job("a", job_key="k", job_key_mode="unsafe_dedupe").id == job.id
    assert add_jobs([JobSpec("a", {"n": 1}, run_at=timedelta(1), flags=["a"])])[0].flags == {"a"}
    (moved,) = reschedule_jobs([job.id], run_at=timedelta(0), priority=1)
    assert moved.priority == 1
    assert (permanently_fail_jobs([job.id], "no")[0].last_error or "").startswith("no\n")
    force_unlock_workers(["w"])
    assert cleanup(failed_jobs_older_than=timedelta(0)).jobs == 1
    assert remove_job("k") is None


class TestJobKeys:
    def test_unsafe_dedupe_returns_the_job_that_is_there(self) -> None:
        first = add_job("send_email", {"n": 1}, job_key="k", queue_name="mail", flags=["a"], run_at=NOW)
        job = add_job("send_sms", {"n": 2}, job_key="k", queue_name="sms", job_key_mode="unsafe_dedupe")
        assert job.existed
        assert job == as_job(stored(first))
        assert (job.task_identifier, job.queue_name, job.payload, job.flags) == (
            "send_email",
            "mail",
            {"n": 1},
            frozenset("a"),
        )

    def test_unsafe_dedupe_returns_a_job_that_python_cannot_read(self) -> None:
        digits = "9" * 5000
        make_job("send_email", key="k")
        query(f"update {models.Job._meta.db_table} set payload = %s, run_at = 'infinity' returning 1", digits)
        job = add_job("send_email", {}, job_key="k", job_key_mode="unsafe_dedupe")
        assert isinstance(job.payload, RawPayload)
        assert job.payload == digits
        assert job.run_at.year == 9999
