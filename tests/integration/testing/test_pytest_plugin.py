"""The pytest plugin, in the process of this suite; ``test_projects.py`` uses its fixtures in a project of its own."""

from __future__ import annotations

import subprocess
import sys

from django.db.models.signals import post_migrate

from django_graphile_worker.testing import pytest_plugin

UID = "django_graphile_worker.testing"


def _is_connected() -> bool:
    return any(lookup_key[0] == UID for lookup_key, *_ in post_migrate.receivers)


def test_collection__clears_the_queue_after_flush_from_then_on() -> None:
    post_migrate.disconnect(dispatch_uid=UID)
    assert not _is_connected()
    pytest_plugin.pytest_collection_finish()
    assert _is_connected()


def test_plugin__loads_neither_django_nor_the_rest_of_the_package() -> None:
    code = (
        "import sys, django_graphile_worker.testing.pytest_plugin as plugin; plugin.pytest_collection_finish(); "
        "print([name for name in sys.modules if name.split('.')[0] in ('django', 'psycopg') "
        "or name.startswith('django_graphile_worker.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['django_graphile_worker.testing', 'django_graphile_worker.testing.pytest_plugin']"
