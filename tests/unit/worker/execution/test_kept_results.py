"""Results as JSON, or the place that JSON cannot hold."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from django_graphile_worker import PermanentFailure, ResultError
from django_graphile_worker.worker.execution.kept_results import encode_result


def test_result__is_encoded_as_payloads_are() -> None:
    value = {"paid": Decimal("1.50"), "on": date(2026, 11, 16), "lines": (1, None)}
    assert encode_result("pay", value, max_size=1000) == '{"paid":"1.50","on":"2026-11-16","lines":[1,null]}'


def test_value_that_json_cannot_hold__is_a_final_error_that_names_its_place() -> None:
    with pytest.raises(ResultError) as refused:
        encode_result("pay", {"orders": [1, {2}]}, max_size=1000)
    assert str(refused.value) == (
        "the result of pay: expected a value that JSON can hold, got set (pass a list) at $.orders[1]. Return plain "
        "values, or keep no result: @task(keep_result=False)."
    )
    assert isinstance(refused.value, PermanentFailure)
    assert isinstance(refused.value, TypeError)


def test_result_that_is_too_large__is_refused() -> None:
    with pytest.raises(ResultError, match="the result of pay: expected at most 10 bytes of JSON, got 13"):
        encode_result("pay", "x" * 11, max_size=10)
