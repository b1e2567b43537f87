"""The form that adds a job."""

from __future__ import annotations

import re

from django.test import Client

from django_graphile_worker.models import Job
from tests.support import admin_pages as pages
from tests.support.admin_pages import body, make_worker, text


def test_task_field__completes_names_with_their_descriptions(admin_page: Client) -> None:
    make_worker("django-worker-1", tasks=["elsewhere"])
    shown = body(admin_page.get(pages.ADD))
    assert '<input type="text" name="task" list="gw-task-names"' in shown
    options = re.findall(r'<option value="(\w+)">([^<]*)</option>', shown.split('id="gw-task-names"')[1])
    assert ("send_receipt", "A plain task.") in options
    assert ("elsewhere", "") in options


def test_task_field__suggests_a_name_for_an_unknown_name(admin_page: Client) -> None:
    form = admin_page.post(pages.ADD, {"task": "send_reciept", "payload": "{}"}).context["form"]
    assert form.errors["task"] == ["There is no task “send_reciept”. Did you mean “send_receipt”?"]
    form = admin_page.post(pages.ADD, {"task": "zzz", "payload": "{}"}).context["form"]
    assert form.errors["task"] == ["There is no task “zzz” in this project, in a worker or in a job."]
    assert not Job.objects.exists()


def test_button__describes_the_task_and_keeps_what_was_typed(admin_page: Client) -> None:
    given = {"task": "move_stock", "payload": '{"shelf', "priority": "x", "run_at": "soon", "describe": "1"}
    response = admin_page.post(pages.ADD, given)
    shown = text(response)
    assert "In a named queue: the jobs run one after the other" in shown
    assert "move_stock(payload: dict[str, Any]) -> None" in shown
    assert "Queue warehouse" in shown
    assert response.context["form"].errors == {}
    assert [response.context["form"][name].value() for name in ("payload", "priority", "run_at")] == [
        '{"shelf', "x", "soon",
    ]  # fmt: skip
    assert not Job.objects.exists()


def test_link__describes_a_task(admin_page: Client) -> None:
    assert "A plain task." in text(admin_page.get(pages.ADD, {"task": "send_receipt"}))
    make_worker("django-worker-1", tasks=["elsewhere"])
    assert "Task not defined in this project." in text(admin_page.get(pages.ADD, {"task": "elsewhere"}))
    assert 'id="gw-task-facts" aria-live="polite"></div>' in body(admin_page.get(pages.ADD, {"task": "<b>"}))


def test_key_modes__are_explained(admin_page: Client) -> None:
    shown = text(admin_page.get(pages.ADD))
    assert "unsafe_dedupe: no job is added if any job has the key, even a running or failed job" in shown
    assert "Warning: with unsafe_dedupe the work may never be done" in shown
