"""Checks of the settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import WARNING, Error

from django_graphile_worker.checks import configuration
from django_graphile_worker.checks.configuration import SETTINGS_PAGE
from tests.integration.checks.conftest import found

CHECKOUT = Path(__file__).parents[3]


not_callable = 5


def test_a_project_without_mistakes_has_no_messages() -> None:
    assert found() == []


class TestImmediateMode:
    @pytest.fixture(autouse=True)
    def no_test_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr("django.core.mail.outbox")

    def test_in_production(self, configure: Any) -> None:
        configure(IMMEDIATE=True)
        (message,) = found()
        assert (message.id, message.level) == ("graphile_worker.W010", WARNING)
        assert message.msg.startswith('GRAPHILE_WORKER["IMMEDIATE"] is True, and DEBUG is False: ')
        configure(IMMEDIATE=False)
        assert found() == []


class TestSettings:
    def test_unknown_key(self, configure: Any) -> None:
        configure(CONCURENCY=5)
        assert found() == [
            Error(
                "GRAPHILE_WORKER: expected a known key, got 'CONCURENCY'. Did you mean 'CONCURRENCY'?",
                hint=f"Keys are in upper case. {SETTINGS_PAGE} lists them.",
                id="graphile_worker.E001",
            )
        ]

    def test_bad_values(self, configure: Any) -> None:
        configure(CONCURRENCY=0, LISTEN="yes")
        hint = f"{SETTINGS_PAGE} describes the values of each setting."
        assert found() == [
            Error(
                'GRAPHILE_WORKER["CONCURRENCY"]: expected a whole number of at least 1, got 0.',
                hint=hint,
                id="graphile_worker.E002",
            ),
            Error(
                "GRAPHILE_WORKER[\"LISTEN\"]: expected True or False, got 'yes'.",
                hint=hint,
                id="graphile_worker.E002",
            ),
        ]

    def test_bad_schema_name(self, configure: Any) -> None:
        configure(SCHEMA='x"; drop schema public; --')
        assert found() == [
            Error(
                'GRAPHILE_WORKER["SCHEMA"]: expected a schema name of letters, digits and underscores that does '
                "not begin with a digit (at most 63 characters), got 'x\"; drop schema public; --'.",
                hint="The default is 'graphile_worker'. Choose another name before the first migrate.",
                id="graphile_worker.E003",
            )
        ]

    def test_a_project_with_a_bad_schema_name_starts_far_enough_to_report_it(self, tmp_path: Path) -> None:
        (tmp_path / "bad_settings.py").write_text(
            "from testproject.settings import DATABASES, SECRET_KEY\n"
            "INSTALLED_APPS = ['django_graphile_worker']\n"
            "GRAPHILE_WORKER = {'SCHEMA': 'x; drop'}\n"
        )
        finished = subprocess.run(
            [sys.executable, "-m", "django", "check", "--settings=bad_settings"],
            env={"PYTHONPATH": f"{tmp_path}:{CHECKOUT}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == 1
        assert "(graphile_worker.E003)" in finished.stderr
        assert "Traceback" not in finished.stderr


class TestDottedPaths:
    def test_middleware_that_cannot_be_imported(self, configure: Any) -> None:
        configure(MIDDLEWARE=[f"{__name__}.nothing", f"{__name__}.not_callable", f"{__name__}.found"])
        hint = "Use the path of the module, a dot, and the name of the callable: 'shop.jobs.measure'."
        expected = 'GRAPHILE_WORKER["MIDDLEWARE"]: expected the dotted path of a callable, got'
        assert found() == [
            Error(
                f"{expected} '{__name__}.nothing', which cannot be imported: "
                f'Module "{__name__}" does not define a "nothing" attribute/class.',
                hint=hint,
                id="graphile_worker.E010",
            ),
            Error(f"{expected} '{__name__}.not_callable', which is 5.", hint=hint, id="graphile_worker.E010"),
        ]

    def test_forbidden_flags_that_cannot_be_imported(self, configure: Any) -> None:
        configure(FORBIDDEN_FLAGS="no_such_module.flags")
        assert found() == [
            Error(
                'GRAPHILE_WORKER["FORBIDDEN_FLAGS"]: expected the dotted path of a callable, got '
                "'no_such_module.flags', which cannot be imported: No module named 'no_such_module'.",
                hint="Use the path of the module, a dot, and the name of the callable: 'shop.jobs.measure'.",
                id="graphile_worker.E011",
            )
        ]

    def test_backoff_and_exceptions_that_cannot_be_imported(self, configure: Any) -> None:
        configure(BACKOFF="no_such_module.later", GIVE_UP_ON=[KeyError, "builtins.KeyError", "builtins.len"])
        assert found() == [
            Error(
                'GRAPHILE_WORKER["BACKOFF"]: expected the dotted path of a callable, got '
                "'no_such_module.later', which cannot be imported: No module named 'no_such_module'.",
                hint="Use the path of the module, a dot, and the name of the callable: 'shop.jobs.measure'.",
                id="graphile_worker.E025",
            ),
            Error(
                'GRAPHILE_WORKER["GIVE_UP_ON"]: expected dotted paths of exception classes, got '
                "'builtins.len', which is <built-in function len>.",
                hint="Use the path of the module, a dot, and the name of the class: 'shop.errors.OutOfStock'.",
                id="graphile_worker.E026",
            ),
        ]


def test_metrics_without_their_package__are_a_warning(configure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(METRICS_PORT=9808)
    assert found() == []
    monkeypatch.setattr(configuration, "find_spec", lambda name: None)
    (message,) = found()
    assert (message.id, message.level) == ("graphile_worker.W017", WARNING)
    assert message.hint == 'pip install "django-graphile-worker[prometheus]"'
    configure()
    assert found() == []
