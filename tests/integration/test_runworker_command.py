"""manage.py runworker: what its options mean, and what it shows before it works."""

from __future__ import annotations

import pickle
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import OutputWrapper
from django.db import connections
from django.test import override_settings

from django_graphile_worker import conf
from django_graphile_worker.management import launch, terminal
from django_graphile_worker.management.plan import Plan
from django_graphile_worker.registry import tasks
from django_graphile_worker.routing import places_to_serve
from django_graphile_worker.worker.entrypoints import build_runners
from django_graphile_worker.worker.stop_request import StopState


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that would have been carried out."""
    made: list[Plan] = []

    def remember(plan: Plan, *, say: Any, stop: Any) -> int:
        made.append(plan)
        return 0

    monkeypatch.setattr(launch, "run", remember)
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
        assert plans[0].settings.current_forbidden_flags() == ("site", "other")
        runners: list[Any] = []

        def remember(built: list[Any], request: StopState, *, waits: bool) -> int:
            runners.extend(built)
            return 0

        monkeypatch.setattr(launch, "run_until_stopped", remember)
        sent = pickle.loads(pickle.dumps(launch._portable(plans[0])))
        launch.run_in_child(StopState(), {"plan": sent})
    assert runners[0].forbidden_flags() == ("site", "other")
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
@pytest.mark.parametrize("command", [["runworker"], ["graphile_worker", "run"]], ids=" ".join)
def test_color__is_for_terminals_unless_somebody_says_otherwise(
    plans: list[Plan],
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    arguments: list[str],
    variables: dict[str, str],
    is_terminal: bool,
    is_colored: bool,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(OutputWrapper, "isatty", lambda self: is_terminal)
    call_command(*command, *arguments, "--skip-checks")
    assert plans[0].is_colored is is_colored


def test_crontab_file__is_read_too(plans: list[Plan], tmp_path: Path) -> None:
    file = tmp_path / "crontab"
    file.write_text("0 4 * * * send_receipt", encoding="utf-8")
    assert _settings(plans, "--crontab", str(file)).crontab_file == file
    with pytest.raises(CommandError, match="expected a crontab file, got '/nowhere', which is not there"):
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
    with pytest.raises(CommandError, match=r"--reload: expected one process that stays"):
        _settings(plans, "--reload", *other)


def test_exit_code__is_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "run", lambda plan, say, stop: 3)
    with pytest.raises(SystemExit) as exited:
        call_command("runworker", skip_checks=True)
    assert exited.value.code == 3


@override_settings(GRAPHILE_WORKER={"CRONTAB": "61 * * * * send_receipt"})
def test_crontab_with_mistakes__is_an_error_of_the_command() -> None:
    with pytest.raises(CommandError, match="61"):
        call_command("runworker", skip_checks=True, stdout=StringIO())


def _banner(**overrides: Any) -> str:
    plan_options = {name: overrides.pop(name) for name in ("once",) if name in overrides}
    settings = conf.current().replace(**overrides)
    plan = Plan(settings=settings, **plan_options)
    return terminal.banner(build_runners(places_to_serve(change=lambda _: settings), with_cron=not plan.once), plan)


def test_banner__says_what_was_started_and_how_it_lives(worker_schema: str) -> None:
    shown = _banner(concurrency=4, processes=3, tasks=["send_*"])
    assert shown.startswith("django-graphile-worker ")
    for part in (
        "database     default (",
        f"schema       {worker_schema}",
        "tasks        send_receipt",
        "concurrency  4 in each of 3 processes",
        "LISTEN, and a look every 2 s",
        "Ctrl-C",
    ):
        assert part in shown
    assert "charge_card" not in shown.split("recurring")[0]
    assert "count_orders" in shown.split("recurring")[1]


def test_banner__says_when_a_worker_only_polls_or_only_drains() -> None:
    assert "woken by     a look every 0.5 s" in _banner(listen=False, poll_interval=0.5)
    assert "runs what is runnable, then exits" in _banner(once=True)


def test_banner__says_when_there_is_nothing_to_run() -> None:
    with tasks.isolated() as registry:
        registry._tasks.clear()
        assert "tasks        none: write functions with @task" in _banner()


def test_banner__says_which_globs_match_nothing_and_what_there_is() -> None:
    alone = _banner(tasks=["nothing_like_this", "nor_*"])
    assert "none: nothing matches 'nothing_like_this', 'nor_*'. There are: " in alone
    assert "send_receipt" in alone.split("There are: ")[1]
    assert "tasks        send_receipt; nothing matches 'nor_*'\n" in _banner(tasks=["send_*", "nor_*"])
    assert "none: all are excluded by '*'. There are: " in _banner(exclude_tasks=["*"])


def test_banner__never_shows_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings["default"], "PASSWORD", "hush-hush")
    assert "hush-hush" not in _banner()


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
    assert "Expected psycopg 3.2.10 or newer, got none: psycopg 2 cannot run the worker." in ended.stderr
    assert "python -m pip install 'psycopg[binary]>=3.2.10'" in ended.stderr
    assert "Traceback" not in ended.stderr
