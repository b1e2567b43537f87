"""The forms of the actions, and the form that adds a job."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from django_graphile_worker.models import Job
from tests.support import admin_pages as pages
from tests.support.admin_pages import act, text
from tests.support.factories import make_job


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "Change at least one value."),
        ({"priority": "40000"}, "less than or equal to 32767"),
        ({"attempts": "-1"}, "greater than or equal to 0"),
        ({"max_attempts": "0"}, "greater than or equal to 1"),
        ({"run_at": "tomorrow"}, "Enter a valid date/time."),
        ({"run_at": "9999-12-31T00:00"}, "expected a time in the years 2 to 9998"),
    ],
)
def test_reschedule_reports_errors_at_the_field(admin_page: Client, given: dict[str, str], complaint: str) -> None:
    job_id = make_job("send")
    before = Job.objects.values().get(pk=job_id)
    assert complaint in text(act(admin_page, "reschedule", job_id, confirmed="1", **given))
    assert Job.objects.values().get(pk=job_id) == before


def test_the_form_names_the_time_zone_of_its_times(admin_page: Client) -> None:
    for zone in ("Europe/Paris", "Asia/Tokyo"):
        with timezone.override(zone):
            assert f"In the time zone {zone}, where it is " in text(admin_page.get(pages.ADD))
            job_id = make_job("send")
            assert f"In the time zone {zone}, where it is " in text(act(admin_page, "reschedule", job_id))


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ('{"a": 1,}', "This is not JSON."),
        ("{'a': 1}", "line 1, column 2"),
        ('{"a": 1', "At the end in line 1"),
        ('{"a": NaN}', "payload: expected"),
        ('{"a": "\\u0000"}', "a NUL character"),
        ("[" * 2000, "JSON"),
        ("[" + "9" * 6000 + "]", "This JSON cannot be read back"),
    ],
)
def test_invalid_json_is_reported_at_its_field(admin_page: Client, payload: str, complaint: str) -> None:
    response = admin_page.post(pages.ADD, {"task": "send_receipt", "payload": payload})
    assert response.status_code == 200
    assert complaint in " ".join(response.context["form"].errors["payload"])
    assert not Job.objects.exists()


@pytest.mark.parametrize("task", ["", "os.system", "builtins.eval", "send_receipt; drop"])
def test_only_known_tasks(admin_page: Client, task: str) -> None:
    response = admin_page.post(pages.ADD, {"task": task, "payload": "{}"})
    assert "task" in response.context["form"].errors
