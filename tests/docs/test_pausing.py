"""The code of the guide to pauses does what the page says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from django_graphile_worker import add_job, pauses, run_once
from django_graphile_worker.registry import tasks
from tests.docs.pages import page
from tests.support.factories import make_queue, make_task

pytestmark = pytest.mark.django_db(transaction=True)
PAUSING = page("guides/pausing.md")
ADDING = page("guides/adding-jobs.md")


@pytest.fixture
def site() -> Iterator[SimpleNamespace]:
    namespace: dict[str, Any] = {"__name__": "testproject.shop.pausing"}
    with tasks.isolated():
        for block in re.findall(r"```python\n(.*?)```", PAUSING, flags=re.DOTALL):
            exec(block, namespace)
        yield SimpleNamespace(**namespace)


def test_calls__pause_and_resume_as_the_page_says(site: Any) -> None:
    make_queue("mail")
    make_task("send_newsletter")
    site.provider_is_down()
    assert [(each.kind, each.name) for each in pauses()] == [
        ("flag", "bulk"),
        ("queue", "mail"),
        ("task", "send_newsletter"),
    ]
    assert site.provider_is_back() == ["flag bulk: ", "task send_newsletter: Waits for a new template."]


def test_task__pauses_its_queue(site: Any) -> None:
    for _ in range(2):
        site.send_sms.add_job({})
    assert run_once() == 0
    (paused,) = pauses()
    assert (paused.kind, paused.name, paused.reason) == ("queue", "sms", "429 Too Many Requests")


def test_commands__work(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    make_queue("mail")
    lines = re.findall(r"^\$ python manage.py (.+)$", PAUSING, flags=re.MULTILINE)
    assert len(lines) == 3
    for line in lines:
        call_command(*shlex.split(line))
    assert "Resumed: queue mail." in capsys.readouterr().out
    assert pauses() == []


def test_expiring_jobs__are_added_as_the_page_says() -> None:
    section = ADDING.partition("## Expiry")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    added: list[Any] = []
    names: dict[str, Any] = {
        "add_job": lambda *args, **options: added.append(add_job(*args, **options)),
        "starts_at": timezone.now() + timedelta(hours=1),
        "tomorrow": timezone.now() + timedelta(days=1),
        "timedelta": timedelta,
    }
    exec(block, names)
    reminder, refresh = added
    assert abs(reminder.expires_at - names["starts_at"]) < timedelta(seconds=1)
    assert abs(refresh.expires_at - names["tomorrow"]) < timedelta(seconds=1)
