"""The pytest plugin; ``testing/test_projects.py`` uses its fixtures in a project of its own."""

from __future__ import annotations

import subprocess
import sys


def test_plugin__in_an_environment_whose_tests_do_not_use_django__loads_no_testing() -> None:
    code = (
        "import sys; from django_graphile_worker import pytest_plugin; "
        "print('django_graphile_worker.testing' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
