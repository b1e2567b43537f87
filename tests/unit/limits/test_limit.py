"""``Limit``, and the limits of a task."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_graphile_worker import Limit, LimitedUntil, task
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.limits.numbers import Rate
from django_graphile_worker.registry import Registry, tasks


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
        (Limit(account_of, concurrency=3), "tests.unit.limits.test_limit.account_of"),
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
    assert names_of(fair=account_of) == ["fair:tests.unit.limits.test_limit.account_of"]


def test_task_without_limits__has_none(registry: Registry) -> None:
    assert task("plain")(lambda payload: None).limits == ()
    assert not registry.has_limits
    task("limited", limit=Limit(concurrency=1))(lambda payload: None)
    assert registry.has_limits


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (
            lambda: Limit("x"),
            InvalidJobError,
            "Limit('x'): expected concurrency=3 or rate='100/m', or both, got no",
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
            "got 'send' twice.",
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
            "expected one key that takes turns, got several.",
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
