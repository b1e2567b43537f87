from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_graphile_worker import InvalidJobError, JobSpec, add_job, add_jobs, models, remove_job
from testproject.shop.models import Order
from tests.support.rows import in_quotes

committing = pytest.mark.django_db(transaction=True)
on_both = pytest.mark.django_db(transaction=True, databases=["default", "other"])


def buy(request: HttpRequest) -> HttpResponse:
    Order.objects.create()
    add_job("send_receipt", {"path": request.path})
    if "fail" in request.GET:
        raise RuntimeError("The view failed after it had added a job.")
    return HttpResponse("ok")


@transaction.non_atomic_requests
def buy_without_transaction(request: HttpRequest) -> HttpResponse:
    return buy(request)


urlpatterns = [path("buy/", buy), path("buy-without/", buy_without_transaction)]


@pytest.fixture
def visible(raw_connection: Callable[..., Any], worker_schema: str) -> Callable[[], int]:
    """How many jobs another session sees."""
    other = raw_connection()
    return lambda: other.execute(f"select count(*) from {in_quotes(worker_schema)}.jobs").fetchone()[0]


@committing
def test_a_job_added_outside_a_transaction_is_there_at_once(visible: Callable[[], int]) -> None:
    add_job("a")
    assert visible() == 1


@committing
def test_a_job_is_there_when_the_transaction_commits__and_not_before(visible: Callable[[], int]) -> None:
    with transaction.atomic():
        add_job("a")
        add_jobs([JobSpec("a"), JobSpec("a")])
        add_jobs((JobSpec("a") for _ in range(3)), returning=False)
        assert visible() == 0
    assert visible() == 6


@committing
def test_a_job_is_not_there_when_the_transaction_rolls_back(visible: Callable[[], int]) -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        add_job("a")
        add_jobs([JobSpec("a"), JobSpec("a")])
        raise RuntimeError
    assert visible() == 0


@committing
def test_a_savepoint_that_rolls_back_takes_its_jobs_along(visible: Callable[[], int]) -> None:
    with transaction.atomic():
        add_job("kept")
        with pytest.raises(RuntimeError), transaction.atomic():
            add_job("lost")
            raise RuntimeError
        add_job("kept too")
    assert visible() == 2
    assert set(models.Job.objects.values_list("task__identifier", flat=True)) == {"kept", "kept too"}


@committing
@pytest.mark.parametrize("returning", [True, False])
def test_a_batch_of_several_statements_is_all_or_none__also_outside_a_transaction(
    returning: bool, visible: Callable[[], int]
) -> None:
    refused_by_the_database = JobSpec("a", job_key="l", job_key_mode="unsafe_dedupe")
    object.__setattr__(refused_by_the_database, "identifier", "x" * 129)
    with pytest.raises(InvalidJobError):
        add_jobs([JobSpec("a"), JobSpec("a", job_key="k"), refused_by_the_database], returning=returning)
    assert visible() == 0


@committing
def test_a_key_that_is_taken_never_breaks_the_callers_transaction(visible: Callable[[], int]) -> None:
    add_job("a", {"n": 1}, job_key="k")
    with transaction.atomic():
        for mode in ("replace", "preserve_run_at", "unsafe_dedupe"):
            add_job("a", {"n": 2}, job_key="k", job_key_mode=mode)
        add_jobs([JobSpec("a", job_key="k"), JobSpec("a", job_key="k")])
        order = Order.objects.create()
    assert Order.objects.filter(pk=order.pk).exists()
    assert visible() == 1


@committing
def test_two_transactions_with_one_key_both_succeed__one_after_the_other(
    visible: Callable[[], int], wait_until: Callable[..., None], raw_connection: Callable[..., Any]
) -> None:
    """The second waits for the first at the key, and then replaces its job: no error, nothing lost."""
    watcher = raw_connection()
    added = []

    def second() -> None:
        with transaction.atomic():
            added.append(add_job("a", {"by": "second"}, job_key="k", job_key_mode="unsafe_dedupe"))
            added.append(add_job("a", {"by": "second"}, job_key="k"))
        connection.close()

    with transaction.atomic():
        first = add_job("b", {"by": "first"}, job_key="k", queue_name="fresh queue")
        thread = threading.Thread(target=second)
        thread.start()
        waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%gw:add_job%'"
        waiting += " and datname = current_database()"
        wait_until(lambda: watcher.execute(waiting).fetchone())
    thread.join(timeout=60)
    # Rows of the first transaction are recognised by their names, although they are newer than the second's statement.
    assert (added[0].id, added[0].task_identifier, added[0].queue_name) == (first.id, "b", "fresh queue")
    assert (added[1].id, added[1].payload, added[1].task_identifier) == (first.id, {"by": "second"}, "a")
    assert visible() == 1


@committing
def test_a_job_added_in_a_broken_transaction_says_so_as_django_does() -> None:
    with pytest.raises(transaction.TransactionManagementError), transaction.atomic():
        with pytest.raises(IntegrityError):
            Order.objects.create(pk=1)
            Order.objects.create(pk=1)
        add_job("a")


@committing
def test_removing_a_job_is_part_of_the_transaction_too(visible: Callable[[], int]) -> None:
    add_job("a", job_key="k")
    with pytest.raises(RuntimeError), transaction.atomic():
        assert remove_job("k")
        raise RuntimeError
    assert visible() == 1


class TestAtomicRequests:
    @pytest.fixture(autouse=True)
    def site(self, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        settings.ROOT_URLCONF = __name__
        monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)

    @committing
    def test_a_request_that_succeeds_leaves_its_job(self, client: Client, visible: Callable[[], int]) -> None:
        assert client.get("/buy/").status_code == 200
        assert (visible(), Order.objects.count()) == (1, 1)

    @committing
    def test_a_request_that_fails_leaves_no_job(self, client: Client, visible: Callable[[], int]) -> None:
        client.raise_request_exception = False
        assert client.get("/buy/?fail").status_code == 500
        assert (visible(), Order.objects.count()) == (0, 0)


class JobsElsewhere:
    """Sends this app's models to the other database, and has no opinion on anything else."""

    def db_for_write(self, model: type[Any], **hints: Any) -> str | None:
        return "other" if model._meta.app_label == "graphile_worker" else None


def count(alias: str) -> int:
    return int(models.Job.objects.using(alias).count())


class TestSeveralDatabases:
    @on_both
    def test_using_names_the_database(self) -> None:
        add_job("a", using="other")
        add_jobs([JobSpec("a")], using="other")
        add_jobs([JobSpec("a")], using="other", returning=False)
        assert (count("default"), count("other")) == (0, 3)

    @on_both
    def test_the_setting_names_the_database(self, settings: Any) -> None:
        settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "DATABASE": "other"}
        add_job("a")
        assert (count("default"), count("other")) == (0, 1)

    @on_both
    def test_a_router_names_the_database(self, settings: Any) -> None:
        settings.DATABASE_ROUTERS = [f"{__name__}.JobsElsewhere"]
        add_job("a")
        add_job("a", using="default")
        assert (count("default"), count("other")) == (1, 1)

    @on_both
    def test_only_a_transaction_on_the_queues_database_counts(self) -> None:
        with pytest.raises(RuntimeError), transaction.atomic(using="default"):
            add_job("a", using="default")
            add_job("a", using="other")
            raise RuntimeError
        assert (count("default"), count("other")) == (0, 1)

    @on_both
    def test_a_stream_is_one_transaction_on_its_own_database(self) -> None:
        def specs() -> Any:
            yield JobSpec("a")
            assert connections["other"].in_atomic_block
            assert not connections["default"].in_atomic_block

        add_jobs(specs(), using="other", returning=False)
        assert count("other") == 1
