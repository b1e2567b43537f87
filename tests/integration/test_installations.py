"""Several queues of one project: schemas and databases that settings.GRAPHILE_WORKER names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.test import Client
from django.test.utils import override_settings
from pytest_django import DjangoDbBlocker

from django_graphile_worker import (
    ConfigurationError,
    JobSpec,
    Worker,
    add_job,
    add_jobs,
    cleanup,
    complete_jobs,
    get_job,
    models,
    permanently_fail_jobs,
    recurring,
    remove_job,
    reschedule_jobs,
    run_once,
    signals,
    testing,
)
from django_graphile_worker.checks import databases as database_checks
from django_graphile_worker.checks import schema as schema_checks
from django_graphile_worker.checks import tasks as task_checks
from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.routing import place_of, places_to_serve
from django_graphile_worker.worker.execution.helpers import Helpers
from django_graphile_worker.worker.process.worker_process import build_runners
from tests.conftest import RawConnection
from tests.support.emptying import empty_tables
from tests.support.operating import operate
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

REPORTS = "Reports_worker"


@pytest.fixture(scope="module")
def installations(
    worker_schema: str, connect_to_clean: Callable[[str], RawConnection], django_db_blocker: DjangoDbBlocker
) -> Iterator[dict[str, dict[str, Any]]]:
    """Three installations: two schemas of one database, and another database; the second is named after the migrate."""
    named: dict[str, dict[str, Any]] = {
        "default": {"SCHEMA": worker_schema, "LOG_SUCCESS": True},
        "reports": {"SCHEMA": REPORTS, "CONCURRENCY": 2, "MAX_PAYLOAD_SIZE": 100, "CRONTAB": "0 4 * * * note"},
        "far": {"SCHEMA": worker_schema, "DATABASE": "other"},
    }
    with django_db_blocker.unblock(), override_settings(GRAPHILE_WORKER=named):
        call_command("migrate", "graphile_worker", database="default", stdout=StringIO())
    yield named
    connect_to_clean("default").execute(f'drop schema "{REPORTS}" cascade'.encode())


@pytest.fixture
def named(
    settings: Any,
    installations: dict[str, dict[str, Any]],
    transactional_db: None,
    connect_to_clean: Callable[[str], RawConnection],
) -> Iterator[None]:
    settings.GRAPHILE_WORKER = installations
    yield
    empty_tables(connect_to_clean("default"), [REPORTS])


def note(payload: Any, helpers: Helpers) -> None:
    seen.append((payload, helpers.using, helpers.installation))
    if payload == "add":
        helpers.add_job("note", "added")


def note_atomically(payload: Any) -> None:
    seen.append(payload)


seen: list[Any] = []


@pytest.fixture(autouse=True)
def tasks() -> Iterator[None]:
    seen.clear()
    with own_tasks(note):
        yield


def rows(schema: str, using: str = "default") -> int:
    with connections[using].cursor() as cursor:
        cursor.execute(f'select count(*) from "{schema}"._private_jobs')
        return int(cursor.fetchone()[0])


@pytest.mark.usefixtures("named")
def test_job__goes_to_the_installation_that_is_named(worker_schema: str) -> None:
    add_job("note")
    add_job("note", installation="reports")
    add_jobs([JobSpec("note"), JobSpec("note")], installation="reports")
    assert add_jobs([JobSpec("note")], installation="reports", returning=False) == 1
    add_job("note", installation="far")
    add_job("note", using="other")
    assert (rows(worker_schema), rows(REPORTS), rows(worker_schema, "other")) == (1, 4, 2)
    testing.clear_queue(installation="far")
    assert rows(worker_schema, "other") == 0


@pytest.mark.usefixtures("named")
def test_job__joins_the_transaction_around_it() -> None:
    with transaction.atomic():
        add_job("note", installation="reports")
        transaction.set_rollback(True)
    assert rows(REPORTS) == 0


@pytest.mark.usefixtures("named")
def test_every_function__takes_the_installation() -> None:
    job = add_job("note", job_key="k", installation="reports")
    assert get_job("k") is None
    assert get_job("k", installation="reports") == job
    assert remove_job("k") is None
    assert [each.id for each in reschedule_jobs([job.id], priority=5, installation="reports")] == [job.id]
    assert permanently_fail_jobs([job.id], "no", installation="reports")
    assert complete_jobs([job.id], installation="reports")
    assert cleanup(installation="reports").is_complete
    assert rows(REPORTS) == 0


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize(
    ("where", "kind", "message"),
    [
        (
            {"installation": "report"},
            ConfigurationError,
            "expected an alias of settings.GRAPHILE_WORKER \\('default', ",
        ),
        ({"installation": 5}, InvalidTypeError, "installation: expected an alias of settings.GRAPHILE_WORKER"),
        (
            {"installation": "reports", "using": "other"},
            ConfigurationError,
            "'reports' is in the database 'default', not in 'other'",
        ),
        ({"using": "third"}, ConfigurationError, "is in the database 'third'. There are: 'default', 'other'"),
    ],
)
def test_place_that_is_none__is_refused_with_the_way_out(where: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        add_job("note", **where)


def test_database_with_several_installations_but_default__needs_to_know_which(settings: Any) -> None:
    settings.GRAPHILE_WORKER = {
        "default": {},
        "a": {"DATABASE": "other", "SCHEMA": "a"},
        "b": {"DATABASE": "other", "SCHEMA": "b"},
    }
    expected = r"'other' has several installations \('a', 'b'\)\. Choose one with installation="
    with pytest.raises(ConfigurationError, match=expected):
        add_job("note", using="other")


def test_flat_settings__know_one_installation_in_every_database() -> None:
    assert place_of("other", "default").using == "other"
    expected = r"names no installations\. To name them, write GRAPHILE_WORKER = "
    with pytest.raises(ConfigurationError, match=expected):
        add_job("note", installation="reports")


@pytest.mark.usefixtures("named")
def test_worker__serves_the_installations_that_are_named(worker_schema: str) -> None:
    add_job("note", "here")
    add_job("note", "add", installation="reports")
    add_job("note", "far", installation="far")
    assert run_once(installations=["reports"]) == 0
    assert seen == [("add", "default", "reports"), ("added", "default", "reports")]
    assert (rows(worker_schema), rows(REPORTS)) == (1, 0)
    assert run_once(installations=["default", "far"]) == 0
    assert seen[2:] == [("here", "default", "default"), ("far", "other", "far")]


@pytest.mark.usefixtures("named")
def test_worker__without_a_name_serves_the_default() -> None:
    assert [place.installation for place in places_to_serve()] == ["default"]
    assert [place.installation for place in places_to_serve(["other"])] == ["far"]
    assert [runner.settings.concurrency for runner in build_runners(places_to_serve((), ["default", "reports"]))] == [
        10,
        2,
    ]


@pytest.mark.usefixtures("named")
def test_atomic_task__completes_its_job_in_its_own_schema() -> None:
    with own_tasks(note_atomically, atomic=True):
        add_job("note_atomically", 1, installation="reports")
        assert run_once(installations=["reports"]) == 0
    assert (seen, rows(REPORTS)) == ([1], 0)


@pytest.mark.usefixtures("named")
def test_signals_and_lines__say_which_installation_they_are_about(
    caplog: pytest.LogCaptureFixture, wait_until: Callable[..., None]
) -> None:
    reported: list[tuple[str, str]] = []

    def hear(database: str, installation: str, **kwargs: Any) -> None:
        reported.append((database, installation))

    caplog.set_level(logging.INFO, logger="django_graphile_worker")
    for event in (signals.worker_started, signals.job_succeeded):
        event.connect(hear)
    try:
        add_job("note", installation="reports")
        with Worker(installations=["default", "reports"]):
            wait_until(lambda: len(reported) == 3)
    finally:
        for event in (signals.worker_started, signals.job_succeeded):
            event.disconnect(hear)
    assert sorted(reported) == [("default", "default"), ("default", "reports"), ("default", "reports")]
    assert "[reports] note #" in caplog.text


@pytest.mark.usefixtures("named")
def test_recurring_tasks__of_tasks_belong_to_the_default_and_a_crontab_to_its_installation() -> None:
    with own_tasks(note, cron="5 4 * * *"):
        runners = build_runners(places_to_serve((), ["default", "reports", "far"]))
    found = {runner.place.installation: [item.match for item in runner.worker.cron_items] for runner in runners}
    assert found == {"default": ["5 4 * * *"], "reports": ["0 4 * * *"], "far": []}
    assert recurring.collect() == ()


@pytest.mark.usefixtures("named")
def test_migrate__again_changes_nothing_and_zero_leaves_nothing_and_loses_no_job() -> None:
    assert rows(REPORTS) == 0
    add_job("note", installation="reports")
    call_command("migrate", "graphile_worker", database="default", stdout=StringIO())
    assert rows(REPORTS) == 1


@pytest.mark.usefixtures("named")
def test_operator__looks_at_the_installation_that_is_named() -> None:
    operate("add", "note", "--installation", "reports")
    assert [job["task_identifier"] for job in operate("jobs", "--installation", "reports", "--json").json] == ["note"]
    assert operate("jobs", "--json").json == []
    (job,) = operate("jobs", "--installation", "reports", "--json").json
    permanently_fail_jobs([job["id"]], "no", installation="reports")
    assert operate("retry", "--all", "--installation", "reports", "--json").json["jobs"] == 1
    assert REPORTS in operate("grants", "somebody", "--installation", "reports").out
    assert "04:00" in operate("schedules", "--installation", "reports").out
    assert "04:00" not in operate("schedules").out
    with pytest.raises(CommandError, match=r"expected an alias of settings\.GRAPHILE_WORKER"):
        operate("jobs", "--installation", "report")


@pytest.mark.usefixtures("named")
def test_models_and_admin__show_the_default(admin_client: Client) -> None:
    job = add_job("note")
    add_job("note", "elsewhere", installation="reports")
    assert [row.id for row in models.Job.objects.all()] == [job.id]
    page = admin_client.get("/admin/graphile_worker/job/").content.decode()
    assert "note" in page
    assert "elsewhere" not in page
    # No other database is offered: what is there is no installation of these pages.
    assert "database=other" not in page


def test_checks__look_at_each_installation(settings: Any, worker_schema: str) -> None:
    settings.GRAPHILE_WORKER = {
        "default": {"SCHEMA": worker_schema},
        "lost": {"DATABASE": "nowhere"},
        "new": {"SCHEMA": "not_yet", "CRONTAB": "0 4 * * * unheard_of"},
    }
    (engine,) = database_checks.check_engine()
    assert (engine.id, engine.hint) == (
        "graphile_worker.E004",
        'Set GRAPHILE_WORKER["lost"]["DATABASE"] to one of these aliases, or correct DATABASE_ROUTERS.',
    )
    (missing,) = schema_checks.check_installation(databases=["default"])
    assert missing.id == "graphile_worker.W001", "migrate mends it"
    assert "not_yet" in missing.msg
    (crontab,) = task_checks.check_crontab()
    assert crontab.id == "graphile_worker.E013"
