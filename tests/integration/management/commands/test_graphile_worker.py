"""manage.py graphile_worker: what all its verbs have in common."""

from __future__ import annotations

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

import testproject
from tests.support.factories import make_job
from tests.support.operating import execute, operate

pytestmark = pytest.mark.django_db

MANAGE = str(Path(testproject.__file__ or "").parent / "manage.py")


def test_no_verb__is_an_error() -> None:
    with pytest.raises(CommandError, match="verb"):
        operate()


@pytest.mark.parametrize("verb", ["jobs", "schedules"])
def test_unknown_database__is_told_with_the_known_ones(verb: str) -> None:
    with pytest.raises(CommandError, match=r"expected an alias of settings.DATABASES.*'default'.*got 'nowhere'"):
        operate(verb, "--database", "nowhere")


@override_settings(GRAPHILE_WORKER={"SCHEMA": "not_there"})
@pytest.mark.parametrize("arguments", [("jobs",), ("add", "task"), ("delete", "1")])
def test_schema_that_is_not_there__is_told_with_the_way_out(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match=r"manage.py migrate graphile_worker"):
        operate(*arguments)


@pytest.mark.django_db(databases=["default", "other"])
def test_database__chooses_where_to_look_and_to_write() -> None:
    there = make_job("elsewhere", using="other")
    operate("add", "send_receipt", "--database", "other")
    listed = operate("jobs", "--database", "other", "--json").json
    assert [job["task_identifier"] for job in listed] == ["send_receipt", "elsewhere"]
    assert operate("jobs", "--json").json == []
    operate("delete", str(there), "--database", "other")
    assert execute("select count(*) from {schema}._private_jobs", using="other") == [(1,)]


@pytest.mark.parametrize("arguments", [("jobs",), ("status", "--check"), ("sweep",)])
def test_role_that_sees_nothing__is_told_so_instead_of_an_empty_queue(
    arguments: tuple[str, ...],
) -> None:
    make_job("hidden")
    role = f"blind_{os.getpid()}"
    execute(f"create role {role}")
    execute(f"grant usage on schema {{schema}} to {role}")
    execute(f"grant select on all tables in schema {{schema}} to {role}")
    execute(f"set local role {role}")
    with pytest.raises(CommandError, match=f"The role '{role}' may not use .*: _private_job_queues.* appear empty"):
        operate(*arguments)


def test_control_characters__never_reach_the_terminal() -> None:
    hostile = "evil\x1b]0;owned\x07\x9b31m\u202etask"
    job_id = make_job(
        hostile,
        {"text\x1b[2J": "\x9b31m\u202e"},
        key="key\x1b[1m",
        queue_name="queue\x1b[1m",
        last_error="broken\r\nline \x1b[31m",
        locked_by="worker\x1b[1m",
    )
    for arguments in (("jobs",), ("show", str(job_id)), ("workers",), ("queues",), ("delete", "--key", "key\x1b[1m")):
        said = operate(*arguments)
        assert all(character.isprintable() or character == "\n" for character in said.out + said.err), arguments
    assert "evil\\x1b" in operate("jobs").out


def test_colours__come_only_when_asked_for_or_on_a_terminal() -> None:
    make_job("task", attempts=25, max_attempts=25)
    assert "\x1b[" not in operate("jobs").out
    assert "\x1b[" in operate("jobs", "--force-color").out
    assert "\x1b[" in operate("--force-color", "jobs").out


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def _on_terminal(*arguments: str, **options: Any) -> str:
    out = _Terminal()
    call_command("graphile_worker", *arguments, stdout=out, **options)
    return out.getvalue()


@pytest.mark.parametrize("columns", [150, 40])
def test_terminal__is_never_too_narrow(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "24")
    job_id = make_job("billing:" + "x" * 60, key="k" * 200, last_error="because " * 30, attempts=3)
    shown = _on_terminal("jobs", "--no-color")
    assert str(job_id) in shown.split()
    if columns >= 79:
        assert max(map(len, shown.splitlines())) <= columns
        assert "…" in shown


@pytest.mark.django_db(transaction=True)
def test_real_process__adds_from_standard_input_and_lists(
    subprocess_environment: dict[str, str], worker_schema: str
) -> None:
    def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, MANAGE, "graphile_worker", *arguments],
            env=subprocess_environment | {"GRAPHILE_WORKER_SCHEMA": worker_schema},
            capture_output=True,
            text=True,
            check=False,
            **options,
        )

    added = run("add", "send_receipt", "-", "--json", input='{"order": 7}')
    assert added.returncode == 0, added.stderr
    assert execute("select payload::text from {schema}._private_jobs") == [('{"order":7}',)]
    unhealthy = run("status", "--check")
    assert unhealthy.returncode == 1
    assert "0 workers alive" in unhealthy.stderr
    assert "Traceback" not in unhealthy.stderr
    mistyped = run("jbos")
    assert mistyped.returncode == 2
    assert "Did you mean 'jobs'?" in mistyped.stderr


def test_database_that_does_not_answer__is_told_without_a_traceback(subprocess_environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, MANAGE, "graphile_worker", "status"],
        env=subprocess_environment | {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "The database answered with an error" in done.stderr
    assert "Traceback" not in done.stderr
