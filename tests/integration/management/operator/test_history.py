"""``graphile_worker history``."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from tests.support.factories import minutes_ago
from tests.support.history import make_attempt
from tests.support.operating import operate

pytestmark = pytest.mark.django_db


@pytest.fixture
def attempts(settings: Any, worker_schema: str) -> None:
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "HISTORY": 86_400}
    with connection.cursor() as cursor:
        make_attempt(cursor, worker_schema, 7, outcome=3, error="shop.Broken: no\nTraceback", ended_at=minutes_ago(90))
        make_attempt(cursor, worker_schema, 8, job_key="order-8", queue_name="eu", payload={"order": 4711})


def ids(*arguments: str) -> list[int]:
    return [row["job_id"] for row in operate("history", *arguments, "--json").json]


def test_history__is_a_table_for_people(attempts: None) -> None:
    output = operate("history")
    assert output.out.split("\n")[0].split() == [
        *("JOB", "TASK", "OUTCOME", "ATTEMPT", "TOOK", "ENDED", "QUEUE", "KEY", "WORKER", "ERROR"),
    ]
    assert "permanently_failed" in output.out
    assert "Broken: no" in output.out
    assert output.err == ""


def test_options__select_attempts(attempts: None) -> None:
    assert ids() == [8, 7]
    assert ids("4711") == ids("payload:4711") == [8]
    assert ids("payload:order-8") == ids("payload:4711", "nothing") == []
    assert ids("order-8") == ids("--key", "order-8") == ids("--queue", "eu") == [8]
    assert ids("--outcome", "permanently_failed") == [7]
    assert ids("--since", "1h") == [8]
    assert ids("--task", "nothing") == []
    assert ids("--limit", "1") == [8]


def test_json__has_times_and_outcomes(attempts: None) -> None:
    newest, oldest = operate("history", "--json").json
    assert (newest["outcome"], newest["seconds"], newest["job_key"]) == ("succeeded", 2.0, "order-8")
    assert oldest["error"].startswith("shop.Broken")
    assert "token" not in newest


@pytest.mark.parametrize("word", ["4712", "payload:4712"])
def test_words_that_are_not_found__may_be_those_of_payloads_that_are_not_kept(
    attempts: None, settings: Any, word: str
) -> None:
    assert 'only if GRAPHILE_WORKER["HISTORY_PAYLOADS"] was True' in operate("history", word).err
    assert 'only if GRAPHILE_WORKER["HISTORY_PAYLOADS"] was True' in operate("history", word, "--json").err
    assert "HISTORY_PAYLOADS" not in operate("history", "--task", "nothing").err
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "HISTORY_PAYLOADS": True}
    assert "HISTORY_PAYLOADS" not in operate("history", word).err


def test_rest__is_mentioned(attempts: None) -> None:
    assert "Use --limit to list more" in operate("history", "--limit", "1").err


def test_history_that_is_off__is_explained() -> None:
    output = operate("history")
    assert 'set GRAPHILE_WORKER["HISTORY"]' in output.err
    assert "No attempts." in output.err
