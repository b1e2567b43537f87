"""The code of the guide to time limits does what the page says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from django_graphile_worker import TaskTimeout, run_once
from django_graphile_worker.models import Job
from django_graphile_worker.registry import tasks
from django_graphile_worker.testing import run_jobs
from tests.docs.pages import page

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def shop() -> Iterator[SimpleNamespace]:
    """Run the code of the page in one module."""
    namespace: dict[str, Any] = {"__name__": "testproject.shop.limits"}
    with tasks.isolated():
        for block in re.findall(r"```python\n(.*?)```", page("guides/time-limits.md"), flags=re.DOTALL):
            exec(block, namespace)
        yield SimpleNamespace(**namespace, globals=namespace)


def test_tasks__have_the_limits_that_they_say(shop: Any) -> None:
    limits = (shop.send_receipt.time_limit(None), shop.import_feed.time_limit(5.0))
    assert limits == (30.0, timedelta(minutes=10).total_seconds())
    shop.send_receipt.add_job({"order": 1})
    shop.import_feed.add_job({"feed": 2})
    assert run_once() == 0
    assert not Job.objects.exists()


def test_export__ends_by_itself_before_its_deadline(shop: Any) -> None:
    shop.export_orders.add_job({"pages": [1, 2, 3]})
    (ran,) = run_jobs()
    assert (ran.succeeded, ran.result) == (True, "complete")
    shop.globals["timedelta"] = lambda seconds: timedelta(days=1)
    job = shop.export_orders.add_job({"pages": [1, 2, 3]})
    assert run_once() == 0
    assert "the rest of the pages" in str(Job.objects.get(pk=job.id).last_error)


def test_clean_up__runs_at_the_deadline(shop: Any) -> None:
    class Video(dict[str, str]):
        reads = 0

        def __getitem__(self, key: str) -> str:
            self.reads += 1
            if self.reads == 1:
                raise TaskTimeout
            return super().__getitem__(key)

    discarded: list[str] = []
    shop.globals["discard_drafts"] = discarded.append
    with pytest.raises(TaskTimeout):
        shop.render_video(Video(video="holidays"))
    assert discarded == ["holidays"]
