"""The app's start: what it does to a process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LOAD = """
import gc, sys
pauses = []
gc.disable = lambda: pauses.append(1)
import django
django.setup()
print(len(pauses), gc.isenabled())
"""


@pytest.mark.parametrize(
    ("arguments", "is_paused"),
    [
        (["runworker"], True),
        (["graphile_worker", "run"], True),
        (["graphile_worker", "status"], False),
        (["runserver"], False),
        ([], False),
    ],
)
def test_garbage_collector__is_paused_in_a_workers_process_alone(arguments: list[str], is_paused: bool) -> None:
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
    }
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    pauses, is_enabled = loaded.stdout.split()
    assert (int(pauses) > 0, is_enabled) == (is_paused, "True")
