from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.conf import settings
from django.db import connection
from django.db.models import Count, Max
from django.test import override_settings

from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.models import Job, JobQueue, KnownCrontab, Task, table
from django_graphile_worker.payloads import RawPayload
from tests.support import factories

pytestmark = pytest.mark.django_db

SCHEMA = settings.GRAPHILE_WORKER["SCHEMA"]


def execute(text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text.replace("{schema}", f'"{SCHEMA}"'))


def test_a_job_has_every_column_of_its_row() -> None:
    job_id = factories.make_job(
        "send_email", {"to": ["a@example.com"]}, queue_name="mail", key="welcome", flags={"slow": True}, locked_by="me"
    )

    job = Job.objects.select_related("task", "job_queue").get(pk=job_id)

    assert job.task.identifier == "send_email"
    assert job.job_queue is not None
    assert job.job_queue.queue_name == "mail"
    assert (job.payload, job.flags, job.key) == ({"to": ["a@example.com"]}, {"slow": True}, "welcome")
    assert (job.priority, job.attempts, job.max_attempts, job.revision) == (0, 0, 25, 0)
    assert (job.locked_by, job.last_error, job.is_available) == ("me", None, False)
    assert job.locked_at is not None
    assert abs((datetime.now(UTC) - job.run_at).total_seconds()) < 60
    assert str(job) == f"send_email #{job_id}"


def test_columns_equal_the_tables() -> None:
    for model in (Job, JobQueue, KnownCrontab, Task):
        with connection.cursor() as cursor:
            cursor.execute(f"select * from {model._meta.db_table} limit 0")
            columns = {column.name for column in cursor.description}
        assert {field.column for field in model._meta.local_concrete_fields} == columns


def test_jobs_can_be_filtered_joined_and_counted() -> None:
    for queue_name in ("a", "a", "b"):
        factories.make_job("task", {"n": 1}, queue_name=queue_name)
    factories.make_failed_job("other")

    assert Job.objects.filter(task__identifier="task").count() == 3
    assert Job.objects.filter(is_available=False).get().last_error == "It broke."
    counts = JobQueue.objects.annotate(count=Count("jobs")).values_list("queue_name", "count")
    assert sorted(counts) == [("a", 2), ("b", 1)]
    assert Job.objects.aggregate(latest=Max("run_at"))["latest"] is not None
    assert [row["payload"] for row in Job.objects.filter(job_queue__queue_name="b").values("payload", "run_at")] == [
        {"n": 1}
    ]
    assert list(Job.objects.order_by("-run_at", "pk").defer("payload")[:1])


@pytest.mark.parametrize("payload", [factories.TOO_DEEP, "9" * 5000, f'{{"n": {"9" * 5000}}}'])
def test_a_payload_that_python_cannot_decode_comes_as_its_text(payload: str) -> None:
    undecodable, readable = factories.make_job(), factories.make_job(payload={"n": 1})
    with connection.cursor() as cursor:
        cursor.execute(f'update "{SCHEMA}"._private_jobs set payload = %s where id = %s', [payload, undecodable])

    payloads = {job.pk: job.payload for job in Job.objects.all()}

    assert payloads == {undecodable: payload, readable: {"n": 1}}
    assert isinstance(payloads[undecodable], RawPayload)


@pytest.mark.parametrize(
    ("stored", "year"), [("infinity", 9999), ("-infinity", 1), ("0044-03-15 BC", 1), ("20000-01-01", 9999)]
)
def test_times_that_python_cannot_hold_come_as_the_nearest_that_it_can(stored: str, year: int) -> None:
    job_id = factories.make_job()
    execute(
        f"update {{schema}}._private_jobs set run_at = '{stored}', created_at = '{stored}', updated_at = '{stored}',"
        f" locked_at = '{stored}'"
    )

    job = Job.objects.get(pk=job_id)

    assert {job.run_at.year, job.created_at.year, job.updated_at.year} == {year}
    assert job.locked_at is not None
    assert job.locked_at.year == year


@pytest.mark.parametrize("model", [Job, JobQueue, KnownCrontab, Task])
class TestWriting:
    def test_an_instance_is_refused(self, model: type[Job]) -> None:
        for write in (model().save, model().delete):
            with pytest.raises(GraphileWorkerError, match=f"{model.__name__} rows are read-only") as caught:
                write()
            assert str(caught.value).endswith(model.way_to_write)

    def test_a_queryset_is_refused(self, model: type[Job]) -> None:
        rows = model.objects.all()
        for write in (
            rows.delete,
            model.objects.create,
            lambda: rows.update(pk=1),
            lambda: rows.bulk_create([model()]),
            lambda: rows.bulk_update([model()], ["pk"]),
            lambda: rows.get_or_create(pk=1),
            lambda: rows.update_or_create(pk=1),
        ):
            with pytest.raises(GraphileWorkerError, match="rows are read-only"):
                write()


def test_writing_to_jobs_names_the_functions_that_do() -> None:
    with pytest.raises(GraphileWorkerError) as caught:
        Job().save()

    assert str(caught.value) == (
        "Job rows are read-only: a write without the functions of the schema would break the workers' locks. Use "
        "add_job(), add_jobs(), remove_job(), complete_jobs(), permanently_fail_jobs(), reschedule_jobs() or "
        "cancel_jobs()."
    )


@pytest.mark.parametrize("name", ["graphile_worker", "Mixed_Case", "_1"])
def test_tables_are_in_the_schema_of_the_settings(name: str) -> None:
    with override_settings(GRAPHILE_WORKER={"SCHEMA": name}):
        assert table("_private_jobs") == f'"{name}"."_private_jobs"'


def test_lock__is_read_and_matched_as_the_worker_s_id() -> None:
    """What stands behind it in the column is the number of the claim."""
    job_id = factories.make_job("a", locked_by="django-worker-1/17", queue_name="q")
    factories.make_job("a", locked_by="django-worker-10/1")
    factories.make_job("a", locked_by="worker-of/node")
    job = Job.objects.get(locked_by="django-worker-1")
    assert (job.id, job.locked_by) == (job_id, "django-worker-1")
    assert Job.objects.filter(locked_by__in=["django-worker-1", "worker-of/node"]).count() == 2
    assert set(Job.objects.values_list("locked_by", flat=True)) == {
        "django-worker-1",
        "django-worker-10",
        "worker-of/node",
    }
