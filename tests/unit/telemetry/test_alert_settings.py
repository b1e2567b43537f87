"""The setting ALERTS: its short forms, and its mistakes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_graphile_worker import registry
from django_graphile_worker.checks.configuration import check_alerts
from django_graphile_worker.conf import Settings
from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.setting_types import AlertSettings
from tests.support.admins import admins
from tests.support.schedule_world import registry_of

SECRET = "https://hooks.slack.com/services/T000/s3cret"


def read(value: Any) -> AlertSettings | None:
    return Settings.from_mapping({"ALERTS": value}).alerts


@pytest.mark.parametrize("value", ["mail_admins", ["mail_admins"], {"TO": "mail_admins"}, {"TO": ["mail_admins"]}])
def test_short_forms__have_all_defaults(value: Any) -> None:
    assert read(value) == AlertSettings(to=("mail_admins",))


def test_conditions__are_changed_and_switched_off() -> None:
    to = (SECRET, "task:billing:page")
    found = read({"TO": to, "PAUSED": timedelta(days=1), "NEW_ERROR": None, "NO_WORKER": None})
    expected = AlertSettings(to=to, paused=86_400.0, new_error=None, no_worker=None)
    assert found == expected
    assert read(None) is None


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("mail_admin", "\"task:\" and a task identifier, got 'mail_admin'"),
        (["task:"], "got 'task:'"),
        ({"to": "mail_admins"}, "a known key (Did you mean 'TO'?), got 'to'"),
        ({"PAUSED": 5}, "a dict with the key \"TO\", got the keys ['PAUSED']"),
        ({"TO": SECRET, "OLDEST_READY": "5m"}, '["ALERTS"]["OLDEST_READY"]: expected None, or a number of seconds'),
        ({"TO": SECRET, "MORE_ERRORS": 1}, "a whole number of at least 2, got 1"),
        ({"TO": SECRET, "SCHEDULES": 5}, "True or False, got 5"),
        ({"TO": []}, "task identifier, got none"),
        (SECRET.removeprefix("https://"), "got 'hooks.slack.…'"),
        (f"{SECRET} ", "got 'https://hook…'"),
        (5, "a list of non-empty strings, got int"),
    ],
)
def test_mistakes__are_explained_without_secrets(value: Any, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(value)
    assert told in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_mail_that_nobody_gets__is_a_warning(settings: Any) -> None:
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "ALERTS": "mail_admins"}
    settings.ADMINS = []
    assert [each.id for each in check_alerts()] == ["graphile_worker.W015"]
    settings.ADMINS = admins("ann@shop.example")
    assert check_alerts() == []


def test_task_that_the_project_does_not_have__is_a_warning(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "tasks", registry_of("page_oncall"))
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "ALERTS": ["task:page_oncall", "task:page_oncal"]}
    (warning,) = check_alerts()
    assert warning.id == "graphile_worker.W018"
    expected = "GRAPHILE_WORKER[\"ALERTS\"]: this project has no task 'page_oncal'. Did you mean 'page_oncall'?"
    assert warning.msg == expected
