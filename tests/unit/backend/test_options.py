"""The options of the backend."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_graphile_worker.backend.options import BackendOptions, read_options
from django_graphile_worker.exceptions import ConfigurationError

LABELS = {"default", "accounts"}


def test_options__have_defaults() -> None:
    options = read_options({}, alias="default", labels=LABELS)
    assert options == BackendOptions()
    assert options.result_ttl == timedelta(days=7).total_seconds()


def test_options__are_converted() -> None:
    options = read_options(
        {
            "RESULT_TTL": timedelta(hours=1),
            "MAX_ATTEMPTS": 3,
            "SERIAL_QUEUES": {"accounts": "one"},
            "QUEUE_LABELS": ["accounts"],
        },
        alias="default",
        labels=LABELS,
    )
    assert (options.result_ttl, options.max_attempts) == (3600.0, 3)
    assert (dict(options.serial_queues), options.queue_labels) == ({"accounts": "one"}, ("accounts",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], 'TASKS["reports"]["OPTIONS"]: expected a dict, got [].'),
        ({"RESULT_TLT": 5}, "Did you mean 'RESULT_TTL'?"),
        ({"RESULT_TTL": "1 day"}, '["RESULT_TTL"]: expected a number of seconds or a timedelta'),
        ({"MAX_ATTEMPTS": 0}, "expected a whole number from 1 to 32767, got 0"),
        ({"MAX_ATTEMPTS": None}, '["MAX_ATTEMPTS"]: expected a whole number'),
        ({"SERIAL_QUEUES": ["accounts"]}, "a dict of labels and names of queues"),
        ({"SERIAL_QUEUES": {"accounts": ""}}, "a dict of labels and names of queues"),
        ({"SERIAL_QUEUES": {"accounts": None}}, "a dict of labels and names of queues"),
        ({"SERIAL_QUEUES": {"mails": "mails"}}, "expected labels of QUEUES ('accounts', 'default'), got 'mails'"),
        ({"QUEUE_LABELS": ["mails"]}, "Add it to QUEUES."),
    ],
)
def test_mistakes__are_named_with_their_place(options: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_options(options, alias="reports", labels=LABELS)
    assert message in str(refused.value)
    assert 'TASKS["reports"]["OPTIONS"]' in str(refused.value)


def test_without_queues__every_label_is_allowed() -> None:
    assert read_options({"QUEUE_LABELS": ["any"]}, alias="default", labels=set()).queue_labels == ("any",)
