"""Runners as a process builds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_graphile_worker import (
    conf,
)
from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.routing import places_to_serve
from django_graphile_worker.worker.process.worker_process import build_runners

pytestmark = pytest.mark.django_db(transaction=True)


def _build(change: Callable[[conf.Settings], conf.Settings]) -> list[Any]:
    return build_runners(places_to_serve(change=change))


def test_database__given_twice_is_served_once() -> None:
    assert [runner.place.using for runner in build_runners(places_to_serve(["default", "default"]))] == ["default"]


async def async_word() -> str:
    return "red"


def complain() -> list[str]:
    raise ValueError("not today")


@pytest.mark.parametrize(
    ("function", "got"),
    [
        (lambda: "red", "got 'red'."),
        (async_word, "got 'red'."),
        (lambda: ["red", 1], "got ['red', 1]."),
        (lambda: 7, "got 7."),
        (complain, "got ValueError: not today"),
    ],
)
@pytest.mark.parametrize("more", [(), ("blue",)])
def test_forbidden_flags__that_are_none_are_an_error_that_names_the_setting(
    function: Any, got: str, more: tuple[str, ...]
) -> None:
    (runner,) = _build(lambda settings: settings.replace(forbidden_flags=function).forbidding(more))
    with pytest.raises(ConfigurationError) as raised:
        runner.worker.forbidden_flags()
    assert str(raised.value).endswith(
        f'GRAPHILE_WORKER["FORBIDDEN_FLAGS"]: expected its callable to return a list of flags, {got}'
    )


async def async_flags() -> list[str]:
    return ["red"]


@pytest.mark.parametrize("function", [lambda: ["red"], lambda: iter(["red"]), async_flags, lambda: {"red"}])
def test_forbidden_flags__of_any_callable_can_be_added_to(function: Any) -> None:
    (runner,) = _build(lambda settings: settings.replace(forbidden_flags=function).forbidding(["blue"]))
    assert runner.worker.forbidden_flags() == ("red", "blue")
