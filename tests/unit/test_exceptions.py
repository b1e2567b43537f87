from __future__ import annotations

import copy
import pickle
from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_graphile_worker import exceptions
from django_graphile_worker.exceptions import (
    ConfigurationError,
    CrontabError,
    GraphileWorkerError,
    InvalidJobError,
    InvalidTypeError,
    PayloadError,
    PermanentFailure,
    RetryLater,
    SettingMistake,
)


def test_every_error_has_the_one_base() -> None:
    classes = [value for value in vars(exceptions).values() if isinstance(value, type) and issubclass(value, Exception)]
    own = [value for value in classes if value.__module__ == exceptions.__name__]
    assert own
    assert all(issubclass(value, GraphileWorkerError) for value in own)


def test_errors_are_also_what_python_and_django_call_them() -> None:
    assert issubclass(ConfigurationError, ImproperlyConfigured)
    assert issubclass(InvalidTypeError, TypeError)
    assert issubclass(InvalidJobError, ValueError)
    assert issubclass(PayloadError, InvalidJobError)
    assert issubclass(CrontabError, ValueError)


@pytest.mark.parametrize(
    "error",
    [
        PayloadError("payload: no.", path="$.a"),
        RetryLater(timedelta(seconds=5), "busy"),
        PermanentFailure("never"),
        ConfigurationError(mistakes=[SettingMistake(key="A", message="a is wrong.")]),
        CrontabError("no", mistakes=["a"]),
    ],
)
def test_errors_survive_being_copied_and_sent_between_processes(error: GraphileWorkerError) -> None:
    for duplicate in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(duplicate) is type(error)
        assert str(duplicate) == str(error)
        assert vars(duplicate) == vars(error)


def test_retry_later_shows_its_reason_or_its_delay() -> None:
    assert str(RetryLater(90)) == "retry in 0:01:30"
    assert str(RetryLater(90, "the provider is busy")) == "the provider is busy"


@pytest.mark.parametrize(
    ("delay", "kind", "message"),
    [
        ("5", InvalidTypeError, "RetryLater: expected a timedelta or a number of seconds, got '5'."),
        (True, InvalidTypeError, "RetryLater: expected a timedelta or a number of seconds, got True."),
        (None, InvalidTypeError, "RetryLater: expected a timedelta or a number of seconds, got None."),
        (-1, InvalidJobError, "RetryLater: expected a delay of zero or more, got -1."),
        (float("nan"), InvalidJobError, "RetryLater: expected a delay in seconds, got nan."),
        (1e300, InvalidJobError, "RetryLater: expected a delay in seconds, got 1e+300."),
    ],
)
def test_retry_later_refuses_other_delays(delay: object, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as refused:
        RetryLater(delay)  # type: ignore[arg-type]
    assert str(refused.value) == message
