"""``jobs()`` and the assertions about them: what fits, and what the messages say."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from asgiref.sync import sync_to_async
from django.test import TestCase

from django_graphile_worker import add_job
from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.registry import task, tasks
from django_graphile_worker.testing import (
    aassert_enqueued,
    aassert_not_enqueued,
    ajobs,
    assert_enqueued,
    assert_enqueued_in,
    assert_not_enqueued,
    clock,
)
from tests.support.factories import make_job
from tests.support.stepped_worker import own_tasks

AT = datetime(2030, 1, 1, tzinfo=UTC)


def message(function: Any, *arguments: Any, **options: Any) -> str:
    """Return the message with which an assertion fails."""
    with pytest.raises(AssertionError) as caught:
        function(*arguments, **options)
    return str(caught.value)


class TestAssertEnqueued(TestCase):
    def test_what_fits(self) -> None:
        job = add_job(
            "mail",
            {"to": "ann", "order": {"number": 7, "lines": [{"sku": "a", "n": 1}]}},
            queue_name="q",
            priority=3,
            job_key="k",
            max_attempts=4,
            flags=["big", "slow"],
            run_at=AT,
        )
        fitting: tuple[dict[str, Any], ...] = (
            {},
            {"payload": {"to": "ann"}},
            {"payload": {"order": {"number": 7}}},
            {"payload": {"order": {"lines": [{"sku": "a"}]}}},
            {"payload": {"to": mock.ANY}},
            {"queue_name": "q", "priority": 3, "job_key": "k", "max_attempts": 4},
            {"flags": ["slow", "big"], "run_at": AT, "count": 1},
        )
        others: tuple[dict[str, Any], ...] = (
            {"payload": {"to": "bob"}},
            {"payload": {"order": {"lines": []}}},
            {"payload": {"to": "ann", "cc": None}},
            {"queue_name": None},
            {"flags": ["big"]},
            {"run_at": AT + timedelta(microseconds=1)},
            {"count": 2},
            {"count": 0},
        )
        for values in fitting:
            assert assert_enqueued("mail", **values) == [job]
        for values in others:
            message(assert_enqueued, "mail", **values)
        assert_not_enqueued("mail", queue_name=None)
        assert_not_enqueued("sms")

    def test_delays__count_from_the_last_change(self) -> None:
        add_job("mail", run_at=timedelta(hours=1))
        assert_enqueued("mail", run_at=timedelta(hours=1))
        with clock(AT) as now:
            add_job("keyed", run_at=timedelta(hours=1), job_key="k")
            now.advance(minutes=10)
            add_job("keyed", run_at=timedelta(hours=2), job_key="k")
            assert_enqueued("keyed", run_at=timedelta(hours=2))
            text = message(assert_enqueued, "keyed", run_at=timedelta(hours=1))
        assert "run_at: expected datetime.timedelta(seconds=3600), got datetime.timedelta(seconds=7200)" in text

    def test_expiry__is_a_time_or_counts_from_run_at(self) -> None:
        add_job("mail", run_at=AT, expires=timedelta(hours=1))
        assert_enqueued("mail", expires=timedelta(hours=1))
        assert_enqueued("mail", expires=AT + timedelta(hours=1))
        for expires in (timedelta(hours=2), AT, None, False):
            assert_not_enqueued("mail", expires=expires)
        add_job("sms")
        assert_enqueued("sms", expires=None)
        assert "expires: expected datetime.timedelta(seconds=60), got None" in message(
            assert_enqueued, "sms", expires=timedelta(minutes=1)
        )

    def test_tasks__by_the_task_itself(self) -> None:
        with own_tasks(), tasks.isolated():

            @task("shop:mail")
            def mail(payload: Any) -> None: ...

            mail.add_job({"to": "ann"})
            assert_enqueued(mail, payload={"to": "ann"})
        add_job("shop.tasks.send@slow", {"args": [], "kwargs": {"to": "ann"}})
        django_task = SimpleNamespace(module_path="shop.tasks.send", queue_name="slow")
        assert_enqueued(django_task, payload={"kwargs": {"to": "ann"}})

    def test_jobs_that_have_permanently_failed__do_not_count(self) -> None:
        make_job("mail", attempts=25)
        assert_not_enqueued("mail")

    def test_message__shows_the_difference(self) -> None:
        job = add_job("mail", {"to": "bob", "subject": "hello"}, queue_name="fast")
        text = message(assert_enqueued, "mail", payload={"to": "ann"}, queue_name="slow")
        assert text == (
            "Expected a job of 'mail' with payload={'to': 'ann'}, queue_name='slow', got none.\n"
            "These differ:\n"
            f"job {job.id}, mail:\n"
            "  payload, expected (-) and got (+):\n"
            "    - {'to': 'ann'}\n"
            "    + {'subject': 'hello', 'to': 'bob'}\n"
            "  queue_name: expected 'slow', got 'fast'"
        )

    def test_message__of_many_jobs_is_short(self) -> None:
        for number in range(9):
            add_job("mail", number)
        assert message(assert_enqueued, "mail", payload=99).endswith("and 4 more")
        assert message(assert_not_enqueued, "mail").startswith("Expected no job of 'mail', got 9:\n  job ")

    def test_bad_arguments__are_refused(self) -> None:
        with pytest.raises(InvalidTypeError, match=r"expected values of a job \(payload, .*\), got 'que_name'"):
            assert_enqueued("mail", que_name="x")  # type: ignore[call-arg]
        with pytest.raises(InvalidTypeError, match=r"expected values of a job \(payload, .*\), got 'unique'"):
            assert_enqueued("mail", unique="x")
        with pytest.raises(InvalidTypeError, match="expected a task or a task identifier"):
            assert_enqueued(7)
        wrong: Any
        for name, wrong, got in [
            ("run_at", "x", "an aware datetime, or a timedelta from the database's now, got 'x' (str)"),
            ("run_at", None, "a value that a job can have, got None"),
            ("queue_name", 5, "a string, got 5 (int)"),
            ("job_key", b"k", "a string, got b'k' (bytes)"),
            ("priority", "high", "a whole number from -32768 to 32767, got 'high' (str)"),
            ("priority", False, "a value that a job can have, got False"),
            ("max_attempts", True, "a whole number from 1 to 32767, got True (bool)"),
            ("flags", "slow", "a list or set of strings, got 'slow' (str)"),
        ]:
            for check in (assert_enqueued, assert_not_enqueued):
                with pytest.raises(InvalidTypeError, match=rf"^{name}: expected {re.escape(got)}\.$"):
                    check("task", **{name: wrong})
        with pytest.raises(InvalidTypeError, match="count: expected a number of jobs"):
            assert_enqueued("mail", count=-1)

    async def test_async_variants(self) -> None:
        await sync_to_async(add_job)("mail")
        assert len(await ajobs()) == 1
        await aassert_enqueued("mail")
        await aassert_not_enqueued("sms")
        async with assert_enqueued_in("sms") as added:
            await sync_to_async(add_job)("sms")
        assert len(added) == 1


class TestAssertEnqueuedIn(TestCase):
    def test_only_what_the_block_adds__counts(self) -> None:
        add_job("mail", "before")
        add_job("mail", "keyed", job_key="k")
        with assert_enqueued_in("mail", payload="inside") as added:
            add_job("mail", "inside")
            add_job("sms")
        assert [job.payload for job in added] == ["inside"]
        with assert_enqueued_in("mail", job_key="k", count=1):
            add_job("mail", "again", job_key="k")
        with assert_enqueued_in(count=2) as added:
            add_job("mail")
            add_job("sms")
        assert len(added) == 2

    def test_message(self) -> None:
        add_job("mail", "before")

        def block(**values: Any) -> None:
            with assert_enqueued_in("mail", **values):
                add_job("sms")

        assert message(block) == "Expected a job of 'mail', got none. Added by the block: 1 of sms."
        with pytest.raises(AssertionError) as refused, assert_enqueued_in("mail"):
            pass
        assert str(refused.value) == "Expected a job of 'mail', got none. The block added no job."
        with assert_enqueued_in("mail", count=0):
            add_job("sms")
