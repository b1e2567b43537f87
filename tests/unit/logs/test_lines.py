"""How the arguments of a signal become the text and the attributes of a record."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from django_graphile_worker.crontab import parse_crontab
from django_graphile_worker.logs.lines import served_databases
from tests.support.log_lines import make_job, send, send_all


def test_a_line_carries_its_facts__and_never_the_payload(caplog: pytest.LogCaptureFixture) -> None:
    send("job_succeeded", job=make_job(), duration=0.5, worker_id="w")
    facts = vars(caplog.records[0])
    assert {name: facts[name] for name in ("job_id", "task_identifier", "queue_name", "attempt", "max_attempts")} == {
        "job_id": 7,
        "task_identifier": "send_email",
        "queue_name": "mail",
        "attempt": 2,
        "max_attempts": 25,
    }
    assert (facts["outcome"], facts["duration"], facts["worker_id"]) == ("succeeded", 0.5, "w")
    assert "swordfish" not in str(facts)


def test_lines_name_their_database__only_while_there_are_several(
    serve: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    serve("eu")
    served_databases.add(["default"])
    served_databases.remove(["default"])
    send_all("eu")
    assert not any("[eu]" in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("identifier", "shown"),
    [
        ("a\nINFO forged", "a\\nINFO forged"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\ud800", "\\ud800"),
        ("größe 🎉", "größe 🎉"),
        ("x" * 501, "x" * 500 + "…"),
    ],
)
def test_names_cannot_forge_lines(identifier: str, shown: str, caplog: pytest.LogCaptureFixture) -> None:
    send("job_succeeded", job=make_job(task_identifier=identifier), duration=0.5)
    assert caplog.records[0].getMessage() == f"{shown} #7 succeeded after 500 ms (attempt 2 of 25)"


def test_durations_are_written_for_people(caplog: pytest.LogCaptureFixture) -> None:
    send("job_failed", job=make_job(), duration=0.0004, error=ValueError("no"), retry_in=1096.6)
    send("job_succeeded", job=make_job(), duration=7_500.0)
    assert caplog.messages == [
        "send_email #7 failed after 0.4 ms (attempt 2 of 25), next try in 18 min: ValueError: no",
        "send_email #7 succeeded after 2 h 5 min (attempt 2 of 25)",
    ]


def test_secrets_in_an_error_are_hidden(caplog: pytest.LogCaptureFixture) -> None:
    send("job_failed", job=make_job(), duration=0.5, error=ValueError("no: token=hunter2 at x"), retry_in=5.0)
    assert "hunter2" not in caplog.messages[0]
    assert caplog.messages[0].endswith(" at x")


def test_an_error_without_readable_text_has_its_line(caplog: pytest.LogCaptureFixture) -> None:
    class Mute(Exception):  # noqa: N818 - a name for the line
        def __str__(self) -> str:
            raise RuntimeError("no words")

    send("job_failed", job=make_job(), duration=0.5, error=Mute(), retry_in=1.0)
    assert caplog.records[0].getMessage().endswith("next try in 1 s: Mute: <its text could not be read>")


def test_numbers_are_numbers__also_in_records_about_workers(caplog: pytest.LogCaptureFixture) -> None:
    send("worker_started", worker_id="w", database="default", concurrency=10, tasks=["a", "b"])
    send("worker_stopped", worker_id="w", reason="SIGTERM", duration=0.0723)
    started, stopped = map(vars, caplog.records)
    assert (started["concurrency"], started["tasks"], stopped["duration"]) == (10, "a, b", 0.0723)


def test_crontab_items_are_logged_by_name__never_with_their_payload(caplog: pytest.LogCaptureFixture) -> None:
    items = parse_crontab('0 4 * * * report {"password": "swordfish"}\n@daily tidy ?id=evening {}')
    send("cron_started", worker_id="w", items=items)
    assert caplog.messages == ["cron started: report, evening"]
    assert "swordfish" not in str(vars(caplog.records[0]))


def test_a_record_s_message_is_a_template__and_the_values_are_its_arguments(
    serve: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="django_graphile_worker")
    for database in ("default", "eu"):
        send_all(database)
        for number in (1, 2):
            error = ValueError(f"no order {number}")
            about = {"job": make_job(id=number), "duration": 0.1 * number, "database": database}
            send("job_failed", **about, error=error, retry_in=1.0 * number)
            send("job_permanently_failed", **about, error=error)
    templates = {str(record.msg) for record in caplog.records}
    assert len(templates) == 7, templates
    assert "%s #%s failed after %s (attempt %s of %s), next try in %s: %s" in templates
    assert "%s #%s permanently failed after %s (attempt %s of %s): %s" in templates
    assert all(record.args for record in caplog.records)
    serve("default", "eu")
    send("job_succeeded", job=make_job(), duration=0.5, database="eu")
    assert caplog.records[-1].msg == "[%s] %s #%s succeeded after %s (attempt %s of %s)"
