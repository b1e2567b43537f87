"""The names that ``django_graphile_worker`` exports."""

from __future__ import annotations

import subprocess
import sys

import pytest

import django_graphile_worker
from django_graphile_worker import testing


@pytest.mark.parametrize("name", sorted(django_graphile_worker.__all__))
def test_public_name__is_there(name: str) -> None:
    assert getattr(django_graphile_worker, name) is not None


@pytest.mark.parametrize("name", sorted(testing.__all__))
def test_name_for_tests__is_there(name: str) -> None:
    assert getattr(testing, name) is not None


@pytest.mark.parametrize("package", ["django_graphile_worker", "django_graphile_worker.testing"])
def test_import__needs_no_settings(package: str) -> None:
    """An app is imported before Django has loaded models, and pytest loads the plugin before there are settings."""
    code = f"import {package}; from django.apps import apps; print(apps.ready)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={})
    assert done.stdout == "False\n"
