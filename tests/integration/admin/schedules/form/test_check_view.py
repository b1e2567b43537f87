"""The check of the form while the user types."""

from __future__ import annotations

import json
from typing import Any

import pytest

from django_graphile_worker.models import Schedule
from tests.support.schedule_forms import CHECK, MODEL_PERMISSIONS, make_schedule

pytestmark = pytest.mark.django_db


def test_check__tells_the_words_and_the_next_times(client_of: Any) -> None:
    answer = client_of("reports:plain").check_form(cron="30 2 * * *", starts_at="2030-03-30T00:00").json()
    assert answer["errors"] == {}
    assert "Every day at 02:30 (Europe/Berlin), from 2030-03-30 00:00 (Europe/Berlin)" in answer["preview"]
    assert answer["preview"].count("<li>") == 5
    # In the night of the second run the clocks go forward.
    assert answer["preview"].index("2:30 a.m. CET") < answer["preview"].index("after the clocks go forward by 1 h")
    assert not Schedule.objects.exists()


def test_check__has_the_errors_of_the_form(client_of: Any) -> None:
    answer = client_of("reports:plain").check_form(cron="0 25 * * *", name="", **{"payload-json": "{"}).json()
    assert answer["errors"].keys() == {"cron", "name", "payload-json"}
    assert answer["errors"]["cron"] == ["Cron line column 3: expected an hour from 0 to 23, got '25'."]
    assert "<li>" not in answer["preview"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", ""),
        ("missed_within", "soon"),
        ("missed_within", "x" * 101),
        ("priority", "high"),
        ("max_attempts", "0"),
        ("overlap", "no"),
        ("queue_name", "x" * 200),
        ("description", "x" * 10_001),
    ],
)
def test_check__shows_times_although_other_fields_have_errors(client_of: Any, name: str, value: str) -> None:
    given = {"missed": "all", "missed_within": "2 days", name: value}
    answer = client_of("reports:plain").check_form(**given).json()
    assert answer["errors"].keys() == {name}
    assert answer["preview"].count("<li>") == 5


@pytest.mark.parametrize("value", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00+12:00"])
def test_check__refuses_times_that_no_calendar_has(client_of: Any, value: str) -> None:
    for name in ("starts_at", "ends_at"):
        answer = client_of("reports:plain").check_form(**{name: value}).json()
        assert answer["errors"].keys() == {name}


def test_check__answers_with_text(client_of: Any) -> None:
    nasty = "<script>alert(1)</script>"
    response = client_of("reports:plain").check_form(cron=nasty, time_zone=nasty, task=nasty)
    assert response["Content-Type"] == "application/json"
    assert nasty not in response.json()["preview"]


def test_check__needs_a_permission_and_post(client_of: Any) -> None:
    assert client_of("reports:plain").get(CHECK).status_code == 405
    viewer = client_of("reports:plain", permissions=("view_schedule",))
    assert viewer.check_form().status_code == 403
    schedule = make_schedule()
    assert viewer.check_form(schedule=schedule.pk).status_code == 403


@pytest.mark.parametrize("given", ["0", "x", "99999999999999999999", "1000000"])
def test_check__of_a_schedule_that_does_not_exist_is_refused(client_of: Any, given: str) -> None:
    assert client_of("reports:plain").check_form(schedule=given).status_code == 403


def test_check__of_a_schedule_needs_the_permission_of_its_task(client_of: Any) -> None:
    schedule = make_schedule(task="reports:secret")
    assert client_of("reports:plain").check_form(schedule=schedule.pk).status_code == 403


def test_check__tells_nothing_of_a_payload_that_is_hidden(client_of: Any) -> None:
    schedule = make_schedule(task="reports:send", payload={"month": "hunter2"})
    client = client_of("reports:send", permissions=MODEL_PERMISSIONS)
    sent = {"task": "reports:send", "payload_of": "reports:send", "payload_as": "fields", "payload-month": "x"}
    answer = client.check_form(schedule=schedule.pk, **sent).json()
    assert answer["errors"] == {}
    assert "hunter2" not in json.dumps(answer)


def test_check__keeps_the_name_of_the_schedule_itself(client_of: Any) -> None:
    schedule = make_schedule()
    client = client_of("reports:plain")
    assert client.check_form(schedule=schedule.pk).json()["errors"] == {}
    assert list(client.check_form().json()["errors"]) == ["name"]
