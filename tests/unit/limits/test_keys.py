"""The keys that a payload makes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from django_graphile_worker import Limit, task
from django_graphile_worker.exceptions import InvalidTypeError, PayloadError
from django_graphile_worker.limits.keys import UNREADABLE, JobKey, keys_of, refuse_unkeyed
from django_graphile_worker.registry import Registry, Task, tasks


@pytest.fixture(autouse=True)
def registry() -> Iterator[Registry]:
    with tasks.isolated() as isolated:
        yield isolated


def limited(*limits: Limit, **options: Any) -> Task[Any, Any]:
    return task("send", limit=limits, **options)(lambda payload: None)


def function(given: Any) -> Task[Any, Any]:
    return limited(Limit(given, concurrency=1, name="f"))


def test_keys__are_pairs_of_a_limit_and_a_text() -> None:
    sending = limited(Limit("b:{b}", concurrency=1), Limit(rate="1/s"), fair="{tenant.id}")
    assert keys_of(sending, '{"b": 1, "tenant": {"id": "x"}}') == (
        JobKey("b:{b}", "b:1"),
        JobKey("fair:{tenant.id}", "x"),
        JobKey("send", "send"),
    )


@pytest.mark.parametrize(
    "payload",
    [
        '{"a": 1}',
        "[]",
        "null",
        "[" * 3000 + "]" * 3000,
        '{"b": {}}',
        '{"b": ""}',
        '{"b": "\\u0000"}',
        '"' + "x" * 99_999,
    ],
)
def test_payload_that_makes_no_key__shares_the_numbers_with_others_of_its_kind(payload: str) -> None:
    sending = limited(Limit("{b}", concurrency=1), Limit(rate="1/s"))
    assert keys_of(sending, payload) == (JobKey("send", "send"), JobKey("{b}", UNREADABLE))


def test_long_text__makes_no_key() -> None:
    sending = limited(Limit("{b}", concurrency=1))
    assert keys_of(sending, json.dumps({"b": "x" * 513})) == (JobKey("{b}", UNREADABLE),)
    with pytest.raises(PayloadError, match="key text: expected 1 to 512 characters, got 513 characters"):
        refuse_unkeyed(sending, json.dumps({"b": "x" * 513}))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (lambda payload: f"a{payload['b']}", "a1"),
        (lambda payload: payload["b"], "1"),
        (lambda payload: payload["missing"], UNREADABLE),
        (lambda payload: None, UNREADABLE),
        (lambda payload: True, UNREADABLE),
        (lambda payload: "", UNREADABLE),
    ],
)
def test_function__makes_the_text(given: Any, text: str) -> None:
    assert keys_of(function(given), '{"b": 1}') == (JobKey("f", text),)


def test_missing_field__is_refused_with_the_limit_and_the_task() -> None:
    with pytest.raises(PayloadError) as refused:
        refuse_unkeyed(limited(Limit("account:{account}", concurrency=1)), '{"acount": 1}')
    assert str(refused.value) == (
        "payload: expected the field 'account', got the fields 'acount': the limit 'account:{account}' of the task "
        "'send' needs it."
    )
    assert refused.value.path == "$.account"


def test_missing_field_of_fair_turns__is_refused_with_what_the_decorator_has() -> None:
    with pytest.raises(PayloadError, match=r"fair='\{tenant\}' of the task 'send' needs it"):
        refuse_unkeyed(limited(fair="{tenant}"), "{}")


def test_function_that_fails__raises_at_the_call_that_adds_the_job() -> None:
    with pytest.raises(KeyError):
        refuse_unkeyed(function(lambda payload: payload["missing"]), "{}")
    with pytest.raises(InvalidTypeError, match="to return a text or a whole number, got None"):
        refuse_unkeyed(function(lambda payload: None), "{}")
