"""The app's start: what it does to a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOAD = """
import gc, sys
pauses = []
gc.disable = lambda: pauses.append(1)
import django
from django.conf import settings
settings.configure(INSTALLED_APPS=["django_graphile_worker"], DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": "nothing", "HOST": "127.0.0.1", "PORT": "1"}})
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
    loaded = subprocess.run([sys.executable, "-c", LOAD, *arguments], capture_output=True, text=True, check=True)
    pauses, is_enabled = loaded.stdout.split()
    assert (int(pauses) > 0, is_enabled) == (is_paused, "True")
