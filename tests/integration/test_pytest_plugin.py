"""The pytest plugin, in the process of this suite; ``test_projects.py`` uses its fixtures in a project of its own."""

from __future__ import annotations

import subprocess
import sys

from django.db.models.signals import post_migrate

from django_graphile_worker import pytest_plugin

UID = "django_graphile_worker.testing"


def _is_connected() -> bool:
    return any(lookup_key[0] == UID for lookup_key, *_ in post_migrate.receivers)


def test_collection__clears_the_queue_after_flush_from_then_on() -> None:
    post_migrate.disconnect(dispatch_uid=UID)
    assert not _is_connected()
    pytest_plugin.pytest_collection_finish()
    assert _is_connected()


def test_plugin__in_an_environment_whose_tests_do_not_use_django__loads_no_testing() -> None:
    code = (
        "import sys; from django_graphile_worker import pytest_plugin as plugin; plugin.pytest_collection_finish(); "
        "print('django_graphile_worker.testing' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
