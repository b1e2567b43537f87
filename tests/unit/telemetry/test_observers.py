"""What the settings OPENTELEMETRY and SENTRY load, and what follows if they cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from django_graphile_worker.checks.configuration import check_observers
from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.telemetry import observers
from tests.support.slot import open_slot

OFF = """
import sys, django
django.setup()
from django_graphile_worker import signals
assert not signals.pre_add_jobs.receivers
assert not {"opentelemetry", "sentry_sdk"} & set(sys.modules)
"""


def test_without_the_settings__nothing_is_imported_or_connected() -> None:
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "testproject.settings"}
    checkout = Path(__file__).resolve().parents[3]
    subprocess.run([sys.executable, "-c", OFF], env=environment, cwd=checkout, check=True, timeout=120)


@pytest.mark.parametrize(
    ("key", "name", "library"),
    [("OPENTELEMETRY", "opentelemetry", "opentelemetry"), ("SENTRY", "sentry", "sentry_sdk")],
)
def test_library_that_is_missing(
    key: str, name: str, library: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.GRAPHILE_WORKER = settings.GRAPHILE_WORKER | {key: True}
    for module in [each for each in sys.modules if each.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"django_graphile_worker.telemetry.{name}", raising=False)
    observers.connect()
    (message,) = check_observers()
    assert (message.id, message.level) == ("graphile_worker.E028", 40)
    assert message.msg.startswith(f'GRAPHILE_WORKER["{key}"]: the library is not installed')
    assert message.msg.endswith(f'Run: pip install "django-graphile-worker[{name}]"')
    with pytest.raises(ConfigurationError, match="pip install"), open_slot():
        pass
