"""The code of the guide to Django Tasks does what the page says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from types import ModuleType
from typing import Any

import django
import pytest

from django_graphile_worker import run_once
from django_graphile_worker.management.commands.runworker import SETTINGS
from django_graphile_worker.models import Job, Schedule
from tests.docs.pages import page, sections
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "guides/django-tasks.md"
NAME = "guide_to_django_tasks"


def blocks() -> list[str]:
    found = re.findall(r"```python\n(.*?)```", page(PAGE).replace('"shop.tasks.', f'"{NAME}.'), flags=re.DOTALL)
    # The page says which name the package for Django 5.2 has.
    return found if django.VERSION >= (6, 0) else [each.replace("django.tasks", "django_tasks") for each in found]


def setting_of(block: str) -> Any:
    namespace: dict[str, Any] = {"timedelta": timedelta}
    exec(block, namespace)
    return namespace["TASKS"]


@pytest.fixture
def guide(settings: Any) -> Iterator[ModuleType]:
    """A module with the code of the page, in a project with its first settings."""
    module = sys.modules[NAME] = ModuleType(NAME)
    with own_tasks():
        for block in blocks():
            if "TASKS = {" in block:
                settings.TASKS = settings.TASKS if hasattr(module, "task") else setting_of(block)
            else:
                exec(block, vars(module))
        yield module
    del sys.modules[NAME]


def test_schedules__call_the_tasks(guide: Any) -> None:
    guide.schedule_tasks()
    for schedule in Schedule.objects.all():
        schedule.run_now()
    run_once()
    assert [schedule.runs()[0].outcome for schedule in Schedule.objects.all()] == ["succeeded", "succeeded"]


def test_examples__enqueue_and_run(guide: Any) -> None:
    assert run_once() == 0
    guide.result.refresh()
    assert guide.result.return_value == {"picture": 17, "width": 400}
    assert len(guide.results) == 500
    guide.results[-1].refresh()
    assert guide.results[-1].return_value == {"picture": 499, "width": 100}
    # The call with run_after waits.
    (waiting,) = Job.objects.all()
    assert (waiting.payload["args"], waiting.max_attempts) == ([17], 3)


def test_examples_of_options__are_valid(guide: Any) -> None:
    guide.build_report.enqueue(5)
    for made, arguments in ((guide.close_month, [9]), (guide.import_file, ["a.csv"]), (guide.send_receipt, [4])):
        result = made.enqueue(*arguments)
        run_once()
        result.refresh()
        assert result.status == "SUCCESSFUL"


def test_settings_of_the_page__have_no_mistake(settings: Any) -> None:
    from django_graphile_worker.backend.compat import task_backends

    found = 0
    for block in blocks():
        if "TASKS = {" in block:
            settings.TASKS = setting_of(block)
            assert task_backends["default"].check() == []
            found += 1
    assert found == 4


def test_page__tells_every_option() -> None:
    from django_graphile_worker.backend.options import BackendOptions
    from django_graphile_worker.backend.tasks import OPTIONS

    told = set(re.findall(r"^\| (.+?) \|", page(PAGE), flags=re.MULTILINE))
    names = {name for each in told for name in re.findall(r"`(\w+)`", each)}
    assert set(OPTIONS) <= names
    assert {name.upper() for name in BackendOptions.__dataclass_fields__} <= names
    assert "queue_labels" in SETTINGS
    assert "QUEUE_LABELS" in sections(page("reference/settings.md"))
