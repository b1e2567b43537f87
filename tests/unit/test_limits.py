"""Limits as values: their numbers, their keys, and the setting that replaces the numbers."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_graphile_worker import Limit, LimitedUntil, task
from django_graphile_worker.conf import Settings
from django_graphile_worker.exceptions import ConfigurationError, InvalidJobError, InvalidTypeError, PayloadError
from django_graphile_worker.limits import (
    UNREADABLE,
    JobKey,
    KeyTemplate,
    LimitNumbers,
    Rate,
    definitions,
    keys_of,
    refuse_unkeyed,
)
from django_graphile_worker.registry import Registry, Task, tasks


@pytest.fixture(autouse=True)
def registry() -> Iterator[Registry]:
    with tasks.isolated() as isolated:
        yield isolated


def account_of(payload: Any) -> str:
    return str(payload["account"])


def names_of(**options: Any) -> list[str]:
    return [limit.name for limit in task("send", **options)(lambda payload: None).limits]


def test_limit__is_a_value() -> None:
    limit = Limit("account:{account}", concurrency=3, rate="100/m", burst=20)
    assert (limit.key, limit.concurrency, limit.rate, limit.burst) == (
        "account:{account}",
        3,
        Rate(count=100, seconds=60),
        20,
    )
    assert limit == Limit("account:{account}", concurrency=3, rate="100/m", burst=20) != Limit("a", concurrency=3)
    assert hash(limit)


@pytest.mark.parametrize(
    ("limit", "name"),
    [
        (Limit("account:{account}", concurrency=3), "account:{account}"),
        (Limit(concurrency=3), "send"),
        (Limit(account_of, concurrency=3), "tests.unit.test_limits.account_of"),
        (Limit(account_of, concurrency=3, name="account"), "account"),
        (Limit(lambda payload: "x", concurrency=3, name="x"), "x"),
    ],
)
def test_limit_of_a_task__has_a_name(limit: Limit, name: str) -> None:
    assert names_of(limit=limit) == [name]


def test_limits_of_a_task__are_sorted_by_name_and_fair_turns_are_among_them() -> None:
    limits = [Limit("b:{b}", concurrency=1), Limit("a:{a}", rate="1/s", fair=False)]
    assert names_of(limit=limits) == ["a:{a}", "b:{b}"]
    found = task("other", limit=Limit("z", concurrency=1), fair="{tenant}")(lambda payload: None).limits
    assert [(each.name, each.is_fair, each.numbers.are_limiting) for each in found] == [
        ("fair:{tenant}", True, False),
        ("z", False, True),
    ]
    assert names_of(fair=account_of) == ["fair:tests.unit.test_limits.account_of"]


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (
            lambda: Limit("x"),
            InvalidJobError,
            "Limit('x'): a limit needs concurrency=3 or rate='100/m', or both.",
        ),
        (
            lambda: Limit("x", fair=True),
            InvalidJobError,
            "To let keys take turns without a limit: @task(",
        ),
        (lambda: Limit("x", rate="often"), InvalidJobError, "Limit('x'): rate: expected a rate like '100/m'"),
        (
            lambda: Limit(5, concurrency=1),  # type: ignore[arg-type]
            InvalidTypeError,
            "Limit(5): expected a template like",
        ),
        (lambda: Limit("", concurrency=1), InvalidJobError, "expected 1 to 256 characters, got ''."),
        (lambda: Limit("x", concurrency=1, fair="{a}"), InvalidTypeError, "expected True or False as fair"),  # type: ignore[arg-type]
        (lambda: Limit("x", concurrency=1, name=5), InvalidTypeError, "expected a text as name, got 5"),  # type: ignore[arg-type]
        (lambda: names_of(limit=5), InvalidTypeError, "@task(limit=...): expected a Limit, or a list of them, got 5."),
        (
            lambda: names_of(limit="100/m"),
            InvalidTypeError,
            "expected a Limit, or a list of them",
        ),
        (
            lambda: names_of(limit=[Limit(rate="1/s"), Limit(concurrency=1)]),
            InvalidJobError,
            "two limits have the name 'send'.",
        ),
        (
            lambda: names_of(limit=Limit(lambda payload: "", rate="1/s")),
            InvalidJobError,
            "name='account'",
        ),
        (
            lambda: names_of(fair="tenant"),
            InvalidJobError,
            "expected a template with a payload field",
        ),
        (lambda: names_of(fair=5), InvalidTypeError, "@task(fair=5): expected a template like"),
        (
            lambda: names_of(fair="{a}", limit=Limit("x", rate="1/s", fair=True)),
            InvalidJobError,
            "only one key can take turns.",
        ),
    ],
)
def test_mistakes__are_refused_when_the_module_is_imported(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as refused:
        make()
    assert message in str(refused.value)


def test_limited_until__is_a_retry_that_names_the_limit() -> None:
    error = LimitedUntil(5, "429", limit="account:{account}")
    assert (error.delay, error.reason, error.limit) == (timedelta(seconds=5), "429", "account:{account}")
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.delay, copied.reason, copied.limit) == (error.delay, error.reason, error.limit)
    soon = LimitedUntil(datetime.now(UTC) + timedelta(minutes=1)).delay
    assert timedelta(seconds=50) < soon <= timedelta(minutes=1)
    assert LimitedUntil(datetime.now(UTC) - timedelta(minutes=1)).delay == timedelta(0)


@pytest.mark.parametrize("given", ["5", None, -1, float("nan")])
def test_limited_until__refuses_what_is_no_delay(given: Any) -> None:
    with pytest.raises((InvalidJobError, InvalidTypeError), match="LimitedUntil: expected"):
        LimitedUntil(given)
    with pytest.raises(InvalidTypeError, match="expected the name of a limit"):
        LimitedUntil(5, limit=5)  # type: ignore[arg-type]


def test_numbers__are_told_as_statements_and_people_need_them() -> None:
    numbers = LimitNumbers(concurrency=3, rate="100/m", burst=20)
    assert (numbers.rate_count, numbers.rate_seconds, numbers.are_limiting) == (100, 60, True)
    assert str(numbers) == "3 at once, 100/m, burst 20"
    none = LimitNumbers()
    assert (none.rate_count, none.rate_seconds, none.are_limiting, str(none)) == (None, None, False, "no limit")


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ({"concurrency": 0}, InvalidJobError, "Limit: concurrency: expected a whole number from 1 to 100000, got 0."),
        (
            {"concurrency": True},
            InvalidTypeError,
            "Limit: concurrency: expected a whole number from 1 to 100000, got True (bool).",
        ),
        ({"rate": "5/m", "burst": 6}, InvalidJobError, "Limit: burst: expected a whole number from 1 to 5, got 6."),
        ({"concurrency": 5, "burst": 2}, InvalidJobError, "Limit: burst=2 needs a rate: "),
    ],
)
def test_numbers_that_mean_nothing__are_refused(values: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as refused:
        LimitNumbers(**values)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "count", "seconds", "shown"),
    [
        ("100/m", 100, 60, "100/m"),
        ("5/s", 5, 1, "5/s"),
        ("1000/h", 1000, 3600, "1000/h"),
        ("7/d", 7, 86_400, "7/d"),
        ("300/15m", 300, 900, "300/15m"),
        ("1/10s", 1, 10, "1/10s"),
        ("100/60s", 100, 60, "100/m"),
        (" 10 / minute ", 10, 60, "10/m"),
        ("10 per hour", 10, 3600, "10/h"),
        ("2/DAYS", 2, 86_400, "2/d"),
    ],
)
def test_rate__is_read_and_written(text: str, count: int, seconds: int, shown: str) -> None:
    rate = Rate.parse(text)
    assert (rate.count, rate.seconds, str(rate)) == (count, seconds, shown)
    assert Rate.parse(str(rate)) == rate == Rate.parse(rate)


@pytest.mark.parametrize("text", ["", "100", "m/100", "100/", "/m", "100/y", "100/m/s", "-5/m", "1e3/m", "٣/m", "5/mm"])
def test_text_that_is_no_rate__is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidJobError) as refused:
        Rate.parse(text)
    assert str(refused.value).startswith("rate: expected a rate like '100/m'")
    assert str(refused.value).endswith(f"got {text!r}.")


def test_fraction__is_a_longer_window() -> None:
    with pytest.raises(InvalidJobError, match=r"got '0.5/s'\. Write '1/2s'\."):
        Rate.parse("0.5/s")
    with pytest.raises(InvalidJobError, match="'1/10s' is one start in ten seconds"):
        Rate.parse("0.1/s")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0/m", "expected 1 to 1000000 starts, got '0/m'."),
        ("1000001/m", "expected 1 to 1000000 starts, got '1000001/m'."),
        ("1/0s", "expected a window of 1 second to 31 days, got '1/0s'."),
        ("1/32d", "expected a window of 1 second to 31 days, got '1/32d'."),
    ],
)
def test_rate_out_of_range__is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidJobError) as refused:
        Rate.parse(text, name="Limit: rate")
    assert str(refused.value) == f"Limit: rate: {message}"


@pytest.mark.parametrize("value", [5, 5.0, None, ("5", "m"), b"5/m"])
def test_value_of_another_type__is_refused(value: Any) -> None:
    with pytest.raises(InvalidTypeError, match="expected a rate like '100/m'"):
        Rate.parse(value)


@pytest.mark.parametrize(
    ("template", "payload", "text"),
    [
        ("account:{account}", {"account": 42}, "account:42"),
        ("{a}/{b}", {"a": "x", "b": "y"}, "x/y"),
        ("{order.account.id}", {"order": {"account": {"id": "7"}}}, "7"),
        ("{items.1.id}", {"items": [{"id": 1}, {"id": 2}]}, "2"),
        ("{0.id}", [{"id": 5}], "5"),
        ("account:{}", 42, "account:42"),
        ("{flag} {none} {float}", {"flag": True, "none": None, "float": 1.5}, "true null 1.5"),
        ("{{{a}}}", {"a": 1}, "{1}"),
        ("stripe", {"a": 1}, "stripe"),
    ],
)
def test_template__is_filled_with_fields(template: str, payload: Any, text: str) -> None:
    assert KeyTemplate(template, "Limit").fill(payload) == text


@pytest.mark.parametrize(
    ("template", "payload", "message", "path"),
    [
        ("{account}", {}, "expected the field 'account', got an object without fields", "$.account"),
        ("{account}", {"b": 1, "c": 2}, "expected the field 'account', got the fields 'b', 'c'", "$.account"),
        ("{account}", [1, 2], "expected the field 'account', got a list of 2", "$.account"),
        ("{account}", None, "expected the field 'account', got null", "$.account"),
        ("{a.b}", {"a": {"c": 1}}, "expected the field 'b' (of 'a.b') in 'a', got the fields 'c'", "$.a.b"),
        ("{a.b}", {"a": "text"}, "expected the field 'b' (of 'a.b') in 'a', got a text", "$.a.b"),
        ("{a.3}", {"a": [1]}, "expected the field '3' (of 'a.3') in 'a', got a list of 1", "$.a[3]"),
        (
            "{a}",
            {"a": {}},
            "expected a text, a number, true, false or null in 'a', got an object without fields",
            "$.a",
        ),
        ("{a}", {"a": [1]}, "expected a text, a number, true, false or null in 'a', got a list of 1", "$.a"),
    ],
)
def test_missing_field__is_named(template: str, payload: Any, message: str, path: str) -> None:
    with pytest.raises(PayloadError) as refused:
        KeyTemplate(template, "Limit").fill(payload)
    assert (str(refused.value), refused.value.path) == (message, path)


@pytest.mark.parametrize("template", ["{", "a}", "{a!r}", "{a:>5}", "{a[b]}", "{a..b}", "{ a }", "{.a}"])
def test_template_that_cannot_be_read__is_refused(template: str) -> None:
    with pytest.raises(InvalidJobError) as refused:
        KeyTemplate(template, "Limit")
    assert str(refused.value).startswith("Limit: expected a template like 'account:{account}', with payload fields in")


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


def test_definitions__have_the_numbers_after_the_setting() -> None:
    with tasks.isolated() as registry:
        shared = Limit("account:{account}", concurrency=3, rate="100/m")
        task("a", limit=[shared, Limit(concurrency=1)])(lambda payload: None)
        task("b", limit=shared, fair="{tenant}")(lambda payload: None)
        mine = [each for each in registry if each.identifier in ("a", "b")]
        found = definitions(mine, (("account:{account}", (("concurrency", 9),)), ("unknown", (("rate", "1/s"),))))
    assert [(each.name, str(each.numbers), each.is_fair, each.tasks) for each in found] == [
        ("a", "1 at once", False, ("a",)),
        ("account:{account}", "9 at once, 100/m", False, ("a", "b")),
        ("fair:{tenant}", "no limit", True, ("b",)),
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "expected a dict of names of limits and their numbers, {'account:{account}': {'concurrency': 5, "),
        ({5: {}}, "expected a dict of names of limits"),
        ({"a": 5}, "('a' has 5)"),
        ({"a": {"concurency": 5}}, "('a' has the unknown key 'concurency'. Did you mean 'concurrency'?)"),
        ({"a": {"rate": "often"}}, "('a': Limit: rate: expected a rate like '100/m'"),
        ({"a": {"concurrency": 0}}, "('a': Limit: concurrency: expected a whole number from 1 to 100000, got 0)"),
        ({"a": {"rate": "5/m", "burst": 9}}, "('a': Limit: burst: expected a whole number from 1 to 5, got 9)"),
    ],
)
def test_mistakes__are_told_with_the_limit(value: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Settings.from_mapping({"LIMITS": value})
    assert str(refused.value).startswith('GRAPHILE_WORKER["LIMITS"]: expected a dict of names of limits')
    assert message in str(refused.value)
