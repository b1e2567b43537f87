"""Canaries for the private interfaces of Python, asgiref and Django that the package uses.

A new version of them may change these interfaces without notice. Then a test here fails and names the interface,
before another test fails for a reason that is hard to find. docs/contributing.md lists them. The canary that needs a
database is in tests/integration.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import subprocess
import sys
from concurrent.futures import Future
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.core.management import call_command
from django.core.management.base import BaseCommand


def test_json_decoder__scans_a_value_from_an_index() -> None:
    """``scan_once`` returns the value and the index of its end, and raises StopIteration where no value begins."""
    scan: Any = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
    assert scan('{"a": [1, 2.5, null]} ', 0) == ({"a": [1, 2.5, None]}, 21)
    with pytest.raises(StopIteration):
        scan("", 0)
    with pytest.raises(json.JSONDecodeError):
        scan('{"a"', 0)


def test_atexit__runs_the_exit_functions_when_asked() -> None:
    """``_run_exitfuncs`` calls the functions in reverse order, once, without ending the process."""
    assert callable(atexit._run_exitfuncs)
    code = (
        "import atexit, os; atexit.register(print, 'first'); atexit.register(print, 'second');"
        " atexit._run_exitfuncs(); print('still here', flush=True); os._exit(3)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.stdout.split("\n"), ended.returncode) == (["second", "first", "still here", ""], 3)


class _Executor:
    """An executor as asgiref sees the worker's: it only has ``submit``."""

    def __init__(self) -> None:
        self.called: list[object] = []

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.called.append(function)
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future


def test_asgiref__finds_the_executor_of_a_context_in_its_table() -> None:
    """``sync_to_async`` submits to the executor that ``context_to_thread_executor`` has for the context's key."""
    executor, key = _Executor(), ThreadSensitiveContext()

    async def call() -> int:
        SyncToAsync.thread_sensitive_context.set(key)
        SyncToAsync.context_to_thread_executor[key] = executor  # type: ignore[assignment]
        return await sync_to_async(lambda: 42)()

    assert asyncio.run(call()) == 42
    assert len(executor.called) == 1


class _Command(BaseCommand):
    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(str(self._called_from_command_line))  # type: ignore[attr-defined]


def test_django__says_to_a_command_whether_the_command_line_called_it() -> None:
    """``_called_from_command_line`` is True for ``run_from_argv``, and False for ``call_command``."""
    output = StringIO()
    call_command(_Command(stdout=output))
    _Command(stdout=output).run_from_argv(["manage.py", "any", "--skip-checks"])
    assert output.getvalue() == "False\nTrue\n"


def test_django__keeps_the_models_of_an_admin_site_in_a_registry() -> None:
    """``AdminSite._registry`` maps models to the admin objects that show them."""
    from django.contrib import admin
    from django.contrib.auth.models import Group

    assert isinstance(admin.site._registry, dict)
    assert admin.site.is_registered(Group) == (Group in admin.site._registry)
