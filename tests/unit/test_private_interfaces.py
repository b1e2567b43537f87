"""Canaries for the private interfaces of Python, asgiref and Django that the package uses.

A new version of them may change these interfaces without notice. Then a test here fails and names the interface,
before another test fails for a reason that is hard to find. docs/contributing.md lists them. The canary that needs a
database is in tests/integration, those of the parts of the worker are in tests/unit/worker.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.utils import autoreload

from django_graphile_worker import apps
from django_graphile_worker.worker.process import reloader


def test_atexit__runs_the_exit_functions_when_asked() -> None:
    """``_run_exitfuncs`` calls the functions in reverse order, once, without ending the process."""
    assert callable(atexit._run_exitfuncs)
    code = (
        "import atexit, os; atexit.register(print, 'first'); atexit.register(print, 'second');"
        " atexit._run_exitfuncs(); print('still here', flush=True); os._exit(3)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.stdout.split("\n"), ended.returncode) == (["second", "first", "still here", ""], 3)


class _Command(BaseCommand):
    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(str(self._called_from_command_line))  # type: ignore[attr-defined]


def test_django__says_to_a_command_whether_the_command_line_called_it() -> None:
    """``_called_from_command_line`` is True for ``run_from_argv``, and False for ``call_command``."""
    output = StringIO()
    call_command(_Command(stdout=output))
    _Command(stdout=output).run_from_argv(["manage.py", "any", "--skip-checks"])
    assert output.getvalue() == "False\nTrue\n"


def test_django__has_the_functions_of_its_reloader(tmp_path: Path) -> None:
    """``autoreload.get_child_arguments`` and the others exist; a change ends the reloader with SystemExit(3)."""
    assert callable(autoreload.get_child_arguments)
    assert callable(autoreload.ensure_echo_on)
    assert hasattr(autoreload.get_reloader(), "run")
    assert issubclass(autoreload.WatchmanUnavailable, Exception)
    assert autoreload.DJANGO_AUTORELOAD_ENV == apps.DJANGO_AUTORELOAD_ENV
    watched = autoreload.StatReloader()
    (tmp_path / "module.py").touch()
    watched.watch_dir(tmp_path, "*.py")
    assert (tmp_path / "module.py").resolve() in {path.resolve() for path, _ in watched.snapshot_files()}
    assert watched.SLEEP_TIME > 0
    with pytest.raises(SystemExit) as raised:
        autoreload.trigger_reload("a file")
    assert raised.value.code == reloader.CHANGED


def test_django__keeps_the_models_of_an_admin_site_in_a_registry() -> None:
    """``AdminSite._registry`` maps models to the admin objects that show them."""
    from django.contrib import admin
    from django.contrib.auth.models import Group

    assert isinstance(admin.site._registry, dict)
    assert admin.site.is_registered(Group) == (Group in admin.site._registry)
