"""Templates of keys."""

from __future__ import annotations

from typing import Any

import pytest

from django_graphile_worker.exceptions import InvalidJobError, PayloadError
from django_graphile_worker.limits.limit import KeyTemplate


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


def test_literal_text__may_have_braces() -> None:
    assert KeyTemplate.literal("a{b").fill({}) == "a{b"
