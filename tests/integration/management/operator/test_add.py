"""manage.py graphile_worker add."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError
from django.utils import timezone

from django_graphile_worker import get_job
from tests.support.operating import execute, job_row, operate

pytestmark = pytest.mark.django_db


def test_add__writes_every_option() -> None:
    arguments = ["--queue", "mail", "--run-at", "2040-05-01T12:00:00+02:00", "--max-attempts", "3", "--key", "k"]
    arguments += ["--key-mode", "preserve_run_at", "--priority", "-5", "--flag", "a", "--flag", "b", "--json"]
    job = operate("add", "send_receipt", '{"order": 1}', *arguments).json
    assert job_row(job["id"], "run_at", "max_attempts", "key", "priority", "payload::text", "flags::text") == (
        datetime(2040, 5, 1, 10, tzinfo=UTC),
        3,
        "k",
        -5,
        '{"order":1}',
        '{"a": true, "b": true}',
    )
    assert job["queue_name"] == "mail"
    assert job["flags"] == ["a", "b"]


@pytest.mark.parametrize(
    ("expires", "at"),
    [
        ("+1h", datetime(2040, 5, 1, 13, tzinfo=UTC)),
        ("2040-05-01T12:30:00+00:00", datetime(2040, 5, 1, 12, 30, tzinfo=UTC)),
    ],
)
def test_add__writes_when_the_job_expires(expires: str, at: datetime) -> None:
    """A duration counts from the time at which the job is to run."""
    added = operate("add", "send_receipt", "--run-at", "2040-05-01T12:00:00+00:00", "--expires", expires, "--json").json
    job = get_job(added["id"])
    assert job is not None
    assert job.expires_at == at


def test_add__adds_no_second_job_with_a_unique_key() -> None:
    assert operate("add", "send_receipt", "--unique", "shop 1").out.startswith("Added ")
    assert operate("add", "send_receipt", "--unique", "shop 1").out.startswith("Already exists: ")


def test_add__refuses_a_time_that_it_cannot_read() -> None:
    with pytest.raises(CommandError, match="--expires"):
        operate("add", "send_receipt", "--expires", "soon")


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ('{"a": 1}', {"a": 1}),
        ("{a: 1, /* why */ b: 'x',}", {"a": 1, "b": "x"}),
        ("[1, 2]", [1, 2]),
        ("null", {}),
        ('"text"', "text"),
    ],
)
def test_add__takes_json_and_json5(text: str, stored: Any) -> None:
    job = operate("add", "send_receipt", text, "--json").json
    row = job_row(job["id"], "payload::text")
    assert row is not None
    assert json.loads(row[0]) == stored


def test_add__reads_the_payload_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"from": "stdin"}\n'))
    job = operate("add", "send_receipt", "-", "--json").json
    assert job["payload"] == {"from": "stdin"}


@pytest.mark.parametrize("text", ["{", "{'a': }", "order=1", "", "{a: NaN}", '"\\u0000"', "[" * 100_000])
def test_add__refuses_what_is_no_payload(text: str) -> None:
    with pytest.raises(CommandError, match="payload"):
        operate("add", "send_receipt", text)
    assert execute("select count(*) from {schema}._private_jobs") == [(0,)]


def test_add__uses_the_tasks_own_defaults() -> None:
    assert operate("add", "move_stock", "--json").json["queue_name"] == "warehouse"
    assert operate("add", "move_stock", "--queue", "mail", "--json").json["queue_name"] == "mail"
    assert operate("add", "print_invoice", "--json").json["max_attempts"] == 3


def test_add__takes_a_task_that_this_project_does_not_have_and_says_so() -> None:
    said = operate("add", "send_recipt", "--json")
    assert said.json["task_identifier"] == "send_recipt"
    assert "This project has no task 'send_recipt'" in said.err
    assert "Did you mean 'send_receipt'?" in said.err
    assert operate("add", "send_receipt").err == ""


def test_add__understands_periods_from_now() -> None:
    job = operate("add", "send_receipt", "--run-at", "+1h30m", "--json").json
    wait = datetime.fromisoformat(job["run_at"]) - datetime.fromisoformat(job["created_at"])
    assert wait == timedelta(minutes=90)
    # Half a minute above the unit, so that a slow machine does not write "in 4 m".
    assert "(in 5 m)" in operate("add", "send_receipt", "--run-at", "+5m30s").out


def test_add__reads_times_without_a_zone_in_the_current_one() -> None:
    with timezone.override("Asia/Tokyo"):
        job = operate("add", "send_receipt", "--run-at", "2040-05-01T12:00", "--json").json
    assert datetime.fromisoformat(job["run_at"]) == datetime(2040, 5, 1, 3, tzinfo=UTC)


@pytest.mark.parametrize("typed", ["soon", "5m", "+5", "2040-13-01", "2040-02-30T12:00", "+999999999999y"])
def test_add__refuses_times_that_are_none(typed: str) -> None:
    with pytest.raises(CommandError, match="run-at: expected"):
        operate("add", "send_receipt", "--run-at", typed)


def test_add__says_whether_a_keyed_job_was_replaced() -> None:
    assert operate("add", "send_receipt", "--key", "k").out.startswith("Added ")
    assert operate("add", "send_receipt", "--key", "k").out.startswith("Replaced ")
    assert operate("add", "send_receipt", "--key", "k", "--key-mode", "unsafe_dedupe").out.startswith("Already exists")


def test_add__tells_of_the_job_without_looking_at_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("django_graphile_worker.management.operator.console.Console.reading")
    assert operate("add", "send_receipt").out.startswith("Added ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--priority", "40000"), "priority: expected"),
        (("--priority", "high"), "expected a whole number"),
        (("--max-attempts", "0"), "from 1 to 32767"),
        (("--queue", "q" * 129), "queue_name: expected"),
        (("--key", ""), "job_key: expected"),
    ],
)
def test_add__refuses_bad_values_with_what_was_expected(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        operate("add", "send_receipt", *arguments)
