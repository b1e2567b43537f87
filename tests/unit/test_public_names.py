"""The package can be imported before there is anything else."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["django_graphile_worker", "django_graphile_worker.testing"])
def test_import__needs_no_settings(package: str) -> None:
    """An app is imported before Django has loaded models, and pytest loads the plugin before there are settings."""
    code = f"import {package}; from django.apps import apps; print(apps.ready)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={})
    assert done.stdout == "False\n"
