"""The code of the guide to recipes does what the page says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps.registry import Apps
from django.db import connection
from django.test.utils import isolate_apps

from django_graphile_worker import models, reschedule_jobs, run_once, signals
from django_graphile_worker.registry import tasks
from django_graphile_worker.testing import run_jobs
from tests.docs.pages import page

pytestmark = pytest.mark.django_db(transaction=True)


class Partner:
    def __init__(self) -> None:
        self.called: list[int] = []

    def call(self, order: int) -> None:
        self.called.append(order)
        if order < 0:
            raise ValueError("no such order")


@pytest.fixture
def shop() -> Iterator[SimpleNamespace]:
    """Run the code of the page in one module, with tables for its models."""
    namespace: dict[str, Any] = {"__name__": "testproject.shop.recipes", "partner": Partner()}
    blocks = re.findall(r"```python\n(.*?)```", page("guides/recipes.md"), flags=re.DOTALL)
    receivers = list(signals.job_permanently_failed.receivers)
    with isolate_apps("testproject.shop", kwarg_name="apps") as apps, tasks.isolated():
        for block in blocks:
            exec(block, namespace)
        own = _models(apps)
        with connection.schema_editor() as editor:
            for model in own:
                editor.create_model(model)
        yield SimpleNamespace(**namespace, globals=namespace)
        with connection.schema_editor() as editor:
            for model in own:
                editor.delete_model(model)
    signals.job_permanently_failed.receivers = receivers
    signals.job_permanently_failed.sender_receivers_cache.clear()


def _models(apps: Apps | None) -> list[Any]:
    assert apps is not None
    return [model for model in apps.get_models() if model.__module__ == "testproject.shop.recipes"]


def test_chain__adds_the_next_job_with_the_end_of_the_first(shop: Any, capfd: pytest.CaptureFixture[str]) -> None:
    shop.parse_upload.add_job({"parts": [1, 2, 3]})
    assert run_once() == 0
    assert "3 parts to import" in capfd.readouterr().out
    assert not models.Job.objects.exists()


def test_fan_in__adds_the_last_job_once_when_all_parts_are_done(shop: Any) -> None:
    imports = [shop.start_import(list(range(20))) for _ in range(2)]
    added: list[int] = []

    def remember(job: Any, **kwargs: Any) -> None:
        if job.task_identifier == "finish_import":
            added.append(job.payload["import"])

    signals.job_started.connect(remember)
    try:
        assert run_once(concurrency=4) == 0
    finally:
        signals.job_started.disconnect(remember)
    assert sorted(added) == [each.pk for each in imports]
    assert shop.Import.objects.filter(is_finished=True, parts_left=0).count() == 2


def test_rate_limit__is_a_limit_of_the_task(shop: Any) -> None:
    for order in (1, -1, 2, 3):
        shop.tell_partner.add_job({"order": order}, max_attempts=1)
    run_jobs(on_error="record")
    assert sorted(shop.partner.called) == [-1, 1, 2, 3]
    assert [str(limit.numbers) for limit in shop.tell_partner.limits] == ["5/s"]


def test_progress_and_result__are_in_the_row(shop: Any) -> None:
    report = shop.order_report()
    assert run_once() == 0
    report.refresh_from_db()
    assert (report.done, report.total, report.result, report.error) == (250, 250, {"orders": 250}, "")


def test_result_of_a_job_that_failed_for_good__is_its_error(shop: Any) -> None:
    def broken(stop: int) -> None:
        raise ValueError("no orders")

    report = shop.order_report()
    shop.globals["range"] = broken
    reschedule_jobs([models.Job.objects.get().id], max_attempts=1)
    assert run_once() == 0
    report.refresh_from_db()
    assert (report.result, report.error) == (None, "ValueError: no orders")


def test_time_limit__fails_the_attempt(shop: Any) -> None:
    shop.fetch_rates.add_job({"seconds": 0.01, "takes": 60})
    shop.fetch_rates.add_job({})
    assert run_once() == 0
    assert str(models.Job.objects.get().last_error).startswith("TimeoutError")
