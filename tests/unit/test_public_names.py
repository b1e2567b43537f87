"""The package can be imported before there is anything else."""

from __future__ import annotations

import subprocess
import sys

# An app is imported before Django has loaded models, and pytest loads the plugin before there are settings, also in an
# environment whose tests do not use Django.
CODE = """
import sys
from django.apps import apps
import django_graphile_worker
from django_graphile_worker import pytest_plugin
print(apps.ready, "django_graphile_worker.testing" in sys.modules)
import django_graphile_worker.testing
print(apps.ready)
"""


def test_import__needs_no_settings_and_the_plugin_loads_no_testing() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env={})
    assert done.stdout.splitlines() == ["False False", "False"]
