"""manage.py runworker: what its options mean."""

from __future__ import annotations

import pickle
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from django.core.management import CommandError, call_command, load_command_class
from django.core.management.base import OutputWrapper
from django.test import override_settings

from django_graphile_worker import __version__, conf
from django_graphile_worker.worker.database.connection import Database
from django_graphile_worker.worker.process import start
from django_graphile_worker.worker.process.plan import Plan
from django_graphile_worker.worker.stop_request import WorkerStop


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that would have been carried out."""
    made: list[Plan] = []

    def remember(plan: Plan, *args: Any) -> int:
        made.append(plan)
        return 0

    monkeypatch.setattr(start, "prepare", lambda plan, say: [])
    monkeypatch.setattr(start, "run_alone", remember)
    monkeypatch.setattr(start, "run_children", remember)
    return made


def _settings(plans: list[Plan], *arguments: str) -> conf.Settings:
    call_command("runworker", *arguments, skip_checks=True)
    return plans[-1].settings


def test_no_options__are_the_projects_settings(plans: list[Plan]) -> None:
    assert _settings(plans) == conf.current()
    assert (plans[0].once, plans[0].with_cron, plans[0].databases) == (False, True, ())


@pytest.mark.parametrize(
    ("arguments", "setting", "value"),
    [
        (["-j", "20"], "concurrency", 20),
        (["--concurrency", "3"], "concurrency", 3),
        (["--jobs", "4"], "concurrency", 4),
        (["--processes", "2"], "processes", 2),
        (["--poll-interval", "0.5"], "poll_interval", 0.5),
        (["--local-queue-size", "0"], "local_queue_size", 0),
        (["--grace-period", "30"], "grace_period", 30.0),
        (["--no-listen"], "listen", False),
        (["--no-prepared-statements"], "prepared_statements", False),
        (["--no-log-success"], "log_success", False),
        (["--tasks", "billing:*", "--tasks", "mail:*"], "tasks", ("billing:*", "mail:*")),
        (["--exclude-tasks", "slow:*"], "exclude_tasks", ("slow:*",)),
        (["--forbid-flag", "big", "--forbid-flag", "slow"], "forbidden_flags", ("big", "slow")),
    ],
)
def test_option__changes_its_setting_and_no_other(
    plans: list[Plan], arguments: list[str], setting: str, value: object
) -> None:
    settings = _settings(plans, *arguments)
    assert getattr(settings, setting) == value
    assert settings == conf.current().replace(**{setting: value})


@override_settings(GRAPHILE_WORKER={"CONCURRENCY": 7, "LISTEN": False, "TASKS": ["a"]})
def test_settings__hold_where_the_command_line_says_nothing(plans: list[Plan]) -> None:
    settings = _settings(plans, "--tasks", "b")
    assert (settings.concurrency, settings.listen, settings.tasks) == (7, False, ("b",))


@override_settings(GRAPHILE_WORKER={"FORBIDDEN_FLAGS": ["site"]})
def test_forbidden_flags__of_the_command_line_come_on_top_of_the_projects(plans: list[Plan]) -> None:
    assert _settings(plans, "--forbid-flag", "other").forbidden_flags == ("site", "other")
    assert plans[0].also_forbidden == ("other",)


# A callable may have used the database: what is old of this thread's connections is closed after it.
@pytest.mark.django_db
def test_forbidden_flags__are_added_to_a_callables_that_no_child_can_be_sent(
    plans: list[Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    with override_settings(GRAPHILE_WORKER={"FORBIDDEN_FLAGS": lambda: ["site"]}):
        _settings(plans, "--forbid-flag", "other", "--processes", "2")
        computed: Any = plans[0].settings.forbidden_flags
        assert computed() == ("site", "other")
        runners: list[Any] = []

        def remember(built: list[Any], request: WorkerStop, *, waits: bool) -> int:
            runners.extend(built)
            return 0

        monkeypatch.setattr(start, "run_until_stopped", remember)
        sent = pickle.loads(pickle.dumps(plans[0]))
        start.run_as_child(WorkerStop(), {"plan": sent, "supervisor": None, "metrics": None})
    assert runners[0].worker.forbidden_flags() == ("site", "other")
    assert runners[0].settings.processes == 2


@pytest.mark.parametrize(
    ("arguments", "variables", "is_terminal", "is_colored"),
    [
        ([], {}, True, True),
        ([], {}, False, False),
        (["--no-color"], {}, True, False),
        ([], {"NO_COLOR": "1"}, True, False),
        (["--force-color"], {}, False, True),
        (["--force-color"], {"NO_COLOR": "1"}, False, True),
    ],
)
def test_color__is_for_terminals_unless_somebody_says_otherwise(
    plans: list[Plan],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    variables: dict[str, str],
    is_terminal: bool,
    is_colored: bool,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(OutputWrapper, "isatty", lambda self: is_terminal)
    call_command("runworker", *arguments, "--skip-checks")
    assert plans[0].is_colored is is_colored


def test_crontab_file__is_read_too(plans: list[Plan], tmp_path: Path) -> None:
    file = tmp_path / "crontab"
    file.write_text("0 4 * * * send_receipt", encoding="utf-8")
    assert _settings(plans, "--crontab", str(file)).crontab_file == file
    with pytest.raises(CommandError, match="the file '/nowhere' does not exist"):
        _settings(plans, "--crontab", "/nowhere")


def test_plan__is_told_the_rest(plans: list[Plan]) -> None:
    both = ("--database", "default", "--database", "other")
    call_command("runworker", "--once", "--no-cron", *both, "-v", "0", skip_checks=True)
    (plan,) = plans
    assert (plan.once, plan.with_cron, plan.databases, plan.verbosity) == (True, False, ("default", "other"), 0)


def test_database__that_is_not_there_is_refused_with_those_that_are(plans: list[Plan]) -> None:
    expected = r"--database: expected an alias of settings\.DATABASES \('default', 'other'\), got 'nope'\."
    with pytest.raises(CommandError, match=expected):
        call_command("runworker", "--database", "nope", skip_checks=True)
    assert plans == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-j", "0"], "expected a whole number of at least 1, got '0'"),
        (["-j", "many"], "expected a whole number of at least 1, got 'many'"),
        (["--processes", "-1"], "expected a whole number of at least 1, got '-1'|expected one argument"),
        (["--poll-interval", "0"], "expected a number of seconds of at least 0.01, got '0'"),
        (
            ["--poll-interval", "2000"],
            "2000 seconds are too long, the limit is 600. Are they milliseconds, as in graphile-worker\\? Then it is 2",
        ),
        (["--poll-interval", "nan"], "expected a number of seconds of at least 0.01, got 'nan'"),
        (["--grace-period", "soon"], "expected a number of seconds of at least 0, got 'soon'"),
        (["--tasks", ""], r'\["TASKS"\]: expected a list of non-empty strings'),
        (["--local-queue-size", "1.5"], "expected a whole number of at least 0, got '1.5'"),
    ],
)
def test_senseless_value__is_refused_before_anything_starts(
    plans: list[Plan], arguments: list[str], expected: str
) -> None:
    with pytest.raises(CommandError, match=expected):
        _settings(plans, *arguments)
    assert plans == []


@pytest.mark.parametrize("other", [["--once"], ["--processes", "2"]])
def test_reload__wants_one_process_that_stays(plans: list[Plan], other: list[str]) -> None:
    with pytest.raises(CommandError, match=r"--reload cannot be used with"):
        _settings(plans, "--reload", *other)


@pytest.mark.parametrize("command", ["runworker", "graphile_worker"])
def test_version__is_that_of_this_package(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load_command_class("django_graphile_worker", command).run_from_argv(["manage.py", command, "--version"])
    assert capsys.readouterr().out == f"{__version__}\n"


def test_exit_code__is_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "prepare", lambda plan, say: [])
    monkeypatch.setattr(start, "run_alone", lambda plan, runners, request: 3)
    with pytest.raises(SystemExit) as exited:
        call_command("runworker", skip_checks=True)
    assert exited.value.code == 3


@override_settings(GRAPHILE_WORKER={"CRONTAB": "61 * * * * send_receipt"})
def test_crontab_with_mistakes__is_an_error_of_the_command() -> None:
    with pytest.raises(CommandError, match="61"):
        call_command("runworker", skip_checks=True, stdout=StringIO())


# A process that has psycopg 2, or what Django takes for it, and no psycopg 3.
WITHOUT_PSYCOPG = """
import sys
from unittest.mock import MagicMock

class Module(MagicMock):
    __path__ = []
    __version__ = "2.9.9"

sys.modules["psycopg"] = None
for name in ("", ".errors", ".extensions", ".extras", ".sql"):
    sys.modules[f"psycopg2{name}"] = Module()
for name in ("Error", "DatabaseError", "DataError", "OperationalError", "IntegrityError", "InternalError",
             "ProgrammingError", "NotSupportedError", "InterfaceError", "Warning"):
    setattr(sys.modules["psycopg2"], name, type(name, (Exception,), {}))
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}}, INSTALLED_APPS=["django_graphile_worker"]
)
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", *sys.argv[1:]])
"""


@pytest.mark.parametrize("command", [["runworker"], ["graphile_worker", "status"]], ids=" ".join)
def test_psycopg_2_alone__is_told_before_anything_breaks(command: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_PSYCOPG, *command], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "psycopg 3.2.10 or newer is not installed. psycopg 2 cannot run the worker." in ended.stderr
    assert "python -m pip install 'psycopg[binary]>=3.2.10'" in ended.stderr
    assert "Traceback" not in ended.stderr


class OwnsProcess(NamedTuple):
    """What start() was told about the process."""

    told: list[bool]


@pytest.fixture
def owns_process(monkeypatch: pytest.MonkeyPatch) -> OwnsProcess:
    owns = OwnsProcess([])

    def remember(plan: Plan, *, owns_process: bool, **rest: Any) -> int:
        owns.told.append(owns_process)
        return 0

    monkeypatch.setattr(start, "start", remember)
    return owns


def test_process__is_the_workers_own_on_the_command_line_and_not_under_call_command(owns_process: OwnsProcess) -> None:
    """A canary, too: Django's _called_from_command_line is not documented."""
    call_command("runworker", "--skip-checks")
    command = load_command_class("django_graphile_worker", "runworker")
    command.run_from_argv(["manage.py", "runworker", "--skip-checks"])
    assert owns_process.told == [False, True]


def test_a_database_that_cannot_be_reached__ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(database: Database) -> Any:
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr(Database, "_connect", refuse)
    with pytest.raises(CommandError, match=r"^Cannot reach the database: connection refused$"):
        call_command("runworker", "--once", "-v0")


@pytest.mark.django_db(transaction=True)
def test_a_schema_that_is_not_there__ends_the_command(settings: Any) -> None:
    settings.GRAPHILE_WORKER = {"SCHEMA": "not_migrated"}
    with pytest.raises(CommandError, match=r'Run "manage\.py migrate graphile_worker"'):
        call_command("runworker", "--once", "-v0")
