"""The setting LIMITS."""

from __future__ import annotations

from typing import Any

import pytest

from django_graphile_worker.conf import Settings
from django_graphile_worker.exceptions import ConfigurationError


def test_limits__are_pairs_of_a_name_and_its_numbers() -> None:
    limits = {"account:{account}": {"concurrency": 5, "rate": None}, "send": {"burst": 3}}
    found = Settings.from_mapping({"LIMITS": limits}).limits
    assert found == (("account:{account}", (("concurrency", 5), ("rate", None))), ("send", (("burst", 3),)))
    assert Settings().limits == ()


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
