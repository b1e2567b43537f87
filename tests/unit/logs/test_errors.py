"""The exceptions of log records: bounded, without secrets, and only where they help."""

from __future__ import annotations

import io
import logging
import re
from typing import Any

import pytest

from django_graphile_worker.exceptions import RetryLater
from django_graphile_worker.logs.errors import log_exception
from tests.support.log_lines import make_job, send


@pytest.mark.parametrize("name", ["job_failed", "job_permanently_failed"])
def test_a_failed_job_s_record_has_the_exception__for_error_trackers(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = ValueError("no")
    send(name, job=make_job(), duration=0.5, error=error, retry_in=1.0)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert vars(record)["error"] == "ValueError: no"
    assert vars(record)["retry_in"] == (1.0 if name == "job_failed" else None)


@pytest.mark.parametrize("name", ["job_failed", "job_permanently_failed"])
def test_a_handler_of_the_project_writes_no_line_that_the_exception_has_forged(name: str) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("django_graphile_worker.jobs")
    logger.addHandler(handler)
    error = ValueError("no\nINFO everything is fine\r\x1b[2J\x9b2J\u2028INFO really")
    try:
        send(name, job=make_job(), duration=0.5, error=error, retry_in=1.0)
    finally:
        logger.removeHandler(handler)
    first, *others = stream.getvalue().splitlines()
    assert "ValueError: no\\nINFO" in first
    assert others == ["  ValueError: no", "  INFO everything is fine\\r\\x1b[2J\\x9b2J\\u2028INFO really"]


def test_a_retry_that_has_no_attempt_left_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    error = RetryLater(5, "rate limited")
    send("job_permanently_failed", job=make_job(), duration=0.5, error=error)
    (record,) = caplog.records
    assert record.exc_info
    assert record.exc_info[1] is error


def _raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as raised:
        return raised


def _formatted(caplog: pytest.LogCaptureFixture) -> str:
    (record,) = caplog.records
    return logging.Formatter("%(message)s").format(record)


def test_logged_exception__is_bounded_and_says_how_much_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    error = _raised(ValueError("x" * 5_000_000))
    send("job_failed", job=make_job(), error=error, duration=0.1, retry_in=1.0, worker_id="w", database="default")
    text = _formatted(caplog)
    assert len(text) < 70_000
    assert re.search(r"ValueError: x+.*\[\.\.\. \d+ characters left out \.\.\.\]", text, re.DOTALL)
    assert "in _raised" in text, "the traceback is the exception's own"


def test_logged_exception__has_no_secrets_in_it_or_in_what_caused_it(caplog: pytest.LogCaptureFixture) -> None:
    class PaymentError(Exception):
        """Of the site."""

    text = "password=hunter2"
    try:
        try:
            raise ConnectionError(text)
        except ConnectionError as cause:
            cause.add_note("token=abc")
            raise PaymentError("it failed") from cause
    except PaymentError as error:
        send("job_failed", job=make_job(), error=error, duration=0.1, retry_in=1.0, worker_id="w", database="default")
    text = _formatted(caplog)
    assert not re.search("hunter2|abc", text)
    assert re.search("ConnectionError: password=.*direct cause.*PaymentError: it failed", text, re.DOTALL)


def test_logged_group__has_no_secrets_in_its_members(caplog: pytest.LogCaptureFixture) -> None:
    error = _raised(ExceptionGroup("two", [ValueError("key=hunter2"), KeyError("plain")]))
    send("job_failed", job=make_job(), error=error, duration=0.1, retry_in=1.0, worker_id="w", database="default")
    text = _formatted(caplog)
    assert "hunter2" not in text
    assert "two (2 sub-exceptions)" in text


def test_logged_exception__is_itself_where_nothing_is_to_be_hidden(
    caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    settings.GRAPHILE_WORKER = {"REDACT_ERRORS": False}
    error = _raised(ValueError("password=hunter2"))
    send("job_failed", job=make_job(), error=error, duration=0.1, retry_in=1.0, worker_id="w", database="default")
    assert caplog.records[0].exc_info
    assert caplog.records[0].exc_info[1] is error


def test_other_exceptions__have_no_secrets_and_cannot_be_mistaken_for_records(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("django_graphile_worker.worker")
    error = _raised(ValueError("password=hunter2\n12:00 noop #1 succeeded \x1b[31m"))
    log_exception(logger, logging.ERROR, "Job %s could not be run.", 1, error=error)
    first, *others = _formatted(caplog).splitlines()
    assert "Job 1 could not be run." in first
    assert all(line.startswith("  ") for line in others)
    assert not re.search("hunter2|\x1b", "".join(others))
