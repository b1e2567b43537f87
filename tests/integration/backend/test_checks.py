"""What ``manage.py check`` reports about ``settings.TASKS``."""

from __future__ import annotations

from typing import Any

import pytest


def test_correct_setting__gets_no_message(framework: Any) -> None:
    from django_graphile_worker.backend.compat import task_backends

    assert task_backends["default"].check() == []


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"OPTIONS": {"RESULT_TTL": -1}}, '["RESULT_TTL"]: expected a number of seconds or a timedelta'),
        ({"OPTIONS": {"DATABAS": "x"}}, "Did you mean 'DATABASE'?"),
        ({"OPTIONS": {"INSTALLATION": "reports"}}, "installation: there is no 'reports'"),
        ({"QUEUES": ["x" * 200]}, '["QUEUES"]: label: expected 1 to 128 characters'),
        ({"QUEUES": [5]}, '["QUEUES"]: label: expected a string, got 5'),
    ],
)
def test_mistakes__are_errors_with_a_hint(framework: Any, settings: Any, setting: Any, message: str) -> None:
    from django_graphile_worker.backend.compat import task_backends

    settings.TASKS = {"default": {**settings.TASKS["default"], **setting}}
    (found,) = task_backends["default"].check()
    assert (found.id, message in found.msg) == ("graphile_worker.E021", True), found.msg
    assert found.hint


def test_app_that_is_not_installed__is_an_error(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.apps import apps

    from django_graphile_worker.backend.compat import task_backends

    monkeypatch.setattr(apps, "get_app_configs", list)
    (found,) = task_backends["default"].check()
    assert (found.id, "INSTALLED_APPS" in str(found.hint)) == ("graphile_worker.E020", True)


def test_mistake_in_the_settings_of_the_queue__is_left_to_their_own_check(framework: Any, settings: Any) -> None:
    from django_graphile_worker.backend.compat import task_backends

    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {"EXCLUDE_TASK_MODULES": "shop.tasks"}
    assert task_backends["default"].check() == []
