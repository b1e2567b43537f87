from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from django_graphile_worker.conf import Settings
from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.flags import MoreFlags, checked_flags


def flags_of_today() -> list[str]:
    return ["today"]


async def flags_from_afar() -> list[str]:
    return ["afar"]


@pytest.mark.parametrize("value", [["today"], flags_of_today, f"{__name__}.flags_of_today"])
def test_forbidden_flags_may_be_computed(value: Any) -> None:
    forbidden: Any = Settings.from_mapping({"FORBIDDEN_FLAGS": value}).forbidding(["more"]).forbidden_flags
    assert (forbidden() if callable(forbidden) else forbidden) == ("today", "more")


def test_settings_that_forbid_no_more_flags_stay_as_they_are() -> None:
    settings = Settings.from_mapping({"FORBIDDEN_FLAGS": flags_of_today})
    assert settings.forbidding([]) is settings


def test_more_flags_are_added_to_those_of_an_async_callable() -> None:
    async def computed() -> Any:
        return await MoreFlags(flags_from_afar, ("more",))()

    assert asyncio.run(computed()) == ("afar", "more")


@pytest.mark.parametrize(("flags", "checked"), [(None, ()), (["a", "b"], ("a", "b")), (iter(["a"]), ("a",)), ((), ())])
def test_a_callable_returns_any_iterable_of_flags_or_none(flags: Any, checked: tuple[str, ...]) -> None:
    assert checked_flags(flags) == checked


@pytest.mark.parametrize("flags", ["slow", b"slow", 7, [""], [None], [1]])
def test_anything_else_is_refused(flags: Any) -> None:
    expected = f"expected its callable to return a list of flags, got {flags!r}."
    with pytest.raises(ConfigurationError, match=re.escape(expected)) as caught:
        checked_flags(flags)
    assert [mistake.key for mistake in caught.value.mistakes] == ["FORBIDDEN_FLAGS"]
