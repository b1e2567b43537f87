"""Which backends of Django Tasks a project has chosen."""

from __future__ import annotations

from typing import Any

import pytest

from django_graphile_worker.task_backends import chosen_backends
from django_graphile_worker.worker.task_selection import task_finder


@pytest.mark.parametrize(
    ("setting", "chosen"),
    [
        (None, {}),
        ({}, {}),
        ([], {}),
        ({"default": None}, {}),
        ({"default": {"BACKEND": "django.tasks.backends.immediate.ImmediateBackend"}}, {}),
        ({"default": {"BACKEND": "django_tasks.backends.dummy.DummyBackend"}}, {}),
        ({"default": {"BACKEND": "shop.Backend"}, "other": {}}, {"default": "shop.Backend"}),
    ],
)
def test_backends_of_the_framework__do_not_count(settings: Any, setting: Any, chosen: dict[str, str]) -> None:
    settings.TASKS = setting
    try:
        assert chosen_backends() == chosen
        # A backend that is not ours, or that cannot be imported, finds no tasks.
        assert task_finder(None) is None  # type: ignore[arg-type]
    finally:
        del settings.TASKS
