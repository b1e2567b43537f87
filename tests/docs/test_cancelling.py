"""The code of the guide to cancelling does what the page says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from django_graphile_worker import CancelResult, add_job, cancel_jobs, get_job, signals, task
from django_graphile_worker.registry import tasks
from django_graphile_worker.testing import run_jobs
from tests.docs.pages import page

GUIDE = page("guides/cancelling.md")

pytestmark = pytest.mark.django_db


@pytest.fixture
def guide() -> Iterator[SimpleNamespace]:
    """Run the code of the page in one module, after a job was added."""
    told: list[tuple[Any, str]] = []
    written: list[Any] = []
    names: dict[str, Any] = {
        "__name__": __name__,
        "task": task,
        "job": add_job("send_email"),
        "request": SimpleNamespace(user=SimpleNamespace(get_username=lambda: "maria")),
        "orders_of": lambda customer: [customer, customer],
        "write": written.append,
        "notify": lambda customer, text: told.append((customer, text)),
    }
    before = list(signals.job_cancelled.receivers)
    with tasks.isolated():
        for block in re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL):
            exec(block, names)
        yield SimpleNamespace(told=told, written=written, names=names)
    signals.job_cancelled.receivers = before
    signals.job_cancelled.sender_receivers_cache.clear()


def test_code__cancels_and_tells(guide: SimpleNamespace, django_capture_on_commit_callbacks: Any) -> None:
    assert guide.names["cancelled"] == CancelResult(removed=(guide.names["job"].id,))
    assert get_job(guide.names["job"].id) is None
    waiting = add_job("export", {"customer": 7})
    with django_capture_on_commit_callbacks(execute=True):
        cancel_jobs([waiting.id], reason="withdrawn")
    assert guide.told == [(7, "Your export was cancelled: withdrawn")]
    add_job("export", {"customer": 8})
    assert [each.outcome for each in run_jobs()] == ["succeeded"]
    assert guide.written == [8, 8]


def test_table__has_every_tuple() -> None:
    section = GUIDE.partition("## What the call returns")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", section, flags=re.MULTILINE) == list(CancelResult.__dataclass_fields__)
