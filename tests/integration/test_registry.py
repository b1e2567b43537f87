from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.db import connections

from django_graphile_worker import JobSpec, add_job, add_jobs, models, task
from django_graphile_worker.api.add import logged_names
from django_graphile_worker.apps import register_task_names
from django_graphile_worker.registry import Registry, tasks
from tests.support.rows import in_quotes

QUEUES = (
    "A queue_name makes jobs run one at a time, in order. To choose the workers that run a task, start them with "
    "runworker --tasks NAME, or give its jobs flags=[...] and use runworker --forbid-flag."
)
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def registry() -> Iterator[Registry]:
    with tasks.isolated() as isolated:
        yield isolated


def names(using: str = "default") -> set[str]:
    return set(models.Task.objects.using(using).values_list("identifier", flat=True))


def test_tasks_are_found_in_the_tasks_module_of_every_app(registry: Registry) -> None:
    from testproject.shop import tasks as shop_tasks

    assert registry.get("send_receipt") is shop_tasks.send_receipt


def test_a_tasks_jobs_have_its_defaults() -> None:
    @task(
        "mail:send", queue_name="mail", priority=5, max_attempts=3, flags=["slow"], job_key=lambda payload: payload["k"]
    )
    def send(payload: Any) -> None: ...

    for job in (send.add_job({"k": "1"}), add_job(send, {"k": "2"}), add_jobs([JobSpec(send, {"k": "3"})])[0]):
        assert (job.task_identifier, job.queue_name, job.priority) == ("mail:send", "mail", 5)
        assert (job.max_attempts, job.flags, job.key) == (3, frozenset({"slow"}), job.payload["k"])


def test_the_call_goes_before_the_defaults() -> None:
    @task(queue_name="mail", priority=5, job_key="k")
    def send(payload: Any) -> None: ...

    job = send.add_job(queue_name="other", priority=0, job_key="l", max_attempts=2)
    assert (job.queue_name, job.priority, job.key, job.max_attempts, job.payload) == ("other", 0, "l", 2, {})


@pytest.mark.parametrize(
    ("option", "way_out"),
    [
        ("prioritty", "Did you mean 'priority'?"),
        ("countdown", "Did you mean run_at=timedelta(seconds=...)?"),
        ("eta", "Did you mean 'run_at'?"),
        ("queue", QUEUES),
        ("args", 'A job has one payload: add_job(task, {"order": 1}).'),
        (
            "x",
            (
                'Put it into the payload: {"x": ...}. Options: queue_name, run_at, max_attempts, job_key, '
                "job_key_mode, priority, flags, expires, unique, headers, using, installation."
            ),
        ),
    ],
)
def test_an_unknown_option_is_a_type_error__with_the_one_that_was_meant(option: str, way_out: str) -> None:
    @task
    def send(payload: Any) -> None: ...

    adders: list[Any] = [send.add_job, partial(add_job, "send"), partial(JobSpec, send), async_to_sync(send.aadd_job)]
    for add in adders:
        with pytest.raises(TypeError) as refused:
            add({}, **{option: 5})
        assert str(refused.value) == f"add_job has no option {option!r}. {way_out}"


def test_a_second_positional_argument_is_refused__as_a_job_has_one_payload() -> None:
    @task
    def send(payload: Any) -> None: ...

    adders: list[Any] = [send.add_job, partial(add_job, "send"), async_to_sync(send.aadd_job)]
    for add in adders:
        with pytest.raises(TypeError, match=r"^add_job takes one payload\. Put all arguments into it: add_job\("):
            add("a", "b")


def test_a_spec_refuses_using_and_says_where_it_belongs() -> None:
    with pytest.raises(
        TypeError, match=r"^JobSpec: 'using' is no option of a job\. Pass it to add_jobs\(specs, using=\.\.\.\)\.$"
    ):
        JobSpec("send", {}, using="other")  # type: ignore[call-arg]


def test_a_name_that_this_project_does_not_have_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    logged_names.clear()
    for _ in range(2):
        add_job("send_receipt_")
        add_jobs([JobSpec("send_receipt_"), JobSpec(tasks.get("send_receipt") or ""), JobSpec("zzz")])
    assert [(record.name, record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "django_graphile_worker.jobs",
            "WARNING",
            (
                "job added for 'send_receipt_', a task that this project does not have: it waits for a worker that has "
                "it. Did you mean 'send_receipt'?"
            ),
        ),
        (
            "django_graphile_worker.jobs",
            "WARNING",
            "job added for 'zzz', a task that this project does not have: it waits for a worker that has it.",
        ),
    ]


class TestNamesAfterMigrate:
    def test_every_task_has_its_name_registered(self) -> None:
        @task("brand:new")
        def new(payload: Any) -> None: ...

        call_command("migrate", verbosity=0)
        assert {"brand:new", "send_receipt"} <= names()

    def test_names_that_do_not_fit_are_left_out(self) -> None:
        @task("x" * 129)
        def long(payload: Any) -> None: ...

        register_task_names(using="default")
        assert "send_receipt" in names()

    @pytest.mark.django_db(databases=["default", "other"])
    def test_only_the_queues_database_gets_them(self) -> None:
        models_of_other = names("other")

        @task("brand:new")
        def new(payload: Any) -> None: ...

        register_task_names(using="other")
        assert names("other") == models_of_other

    @pytest.mark.django_db(databases=["default", "other"])
    def test_the_queues_database_may_be_another(self, settings: Any) -> None:
        settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "DATABASE": "other"}
        register_task_names(using="default")
        register_task_names(using="other")
        assert "send_receipt" in names("other")

    def test_a_database_error_is_logged_and_the_transaction_continues(
        self, caplog: pytest.LogCaptureFixture, worker_schema: str
    ) -> None:
        @task("brand:new")
        def new(payload: Any) -> None: ...

        with connections["default"].cursor() as cursor:
            table = f"{in_quotes(worker_schema)}._private_tasks"
            cursor.execute(f"alter table {table} add constraint closed check (identifier <> 'brand:new')")
        register_task_names(using="default")
        assert "Task names were not registered in the database 'default'" in caplog.text
        assert "brand:new" not in names()
