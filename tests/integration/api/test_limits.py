"""Limits when jobs are added, and their numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection

from django_graphile_worker import JobSpec, Limit, PayloadError, Worker, add_job, add_jobs, conf, task
from django_graphile_worker.api.limits import limit_statuses, override_limit, reset_limit
from django_graphile_worker.exceptions import InvalidJobError
from django_graphile_worker.limits import LimitNumbers
from django_graphile_worker.models import Job
from django_graphile_worker.registry import Task
from django_graphile_worker.routing import place_of
from django_graphile_worker.sql.inspection import limited_keys
from tests.support.limits import make_key, park_job
from tests.support.stepped_worker import own_tasks

pytestmark = pytest.mark.django_db


@dataclass
class Receipt:
    account: int
    order: int = 0


@pytest.fixture(autouse=True)
def send() -> Iterator[Task[Any, Any]]:
    with own_tasks():
        yield task("send", limit=Limit("account:{account}", concurrency=3))(lambda payload: None)


@pytest.mark.parametrize("payload", [{"account": 1}, Receipt(account=1), {"account": None}])
def test_payload_with_the_field__is_added(send: Task[Any, Any], payload: Any) -> None:
    assert add_job("send", payload).id
    assert send.add_job(payload).id
    assert add_jobs([JobSpec(send, payload)], returning=False) == 1


def test_payload_without_the_field__is_refused_before_any_statement(
    send: Task[Any, Any], django_assert_num_queries: Any
) -> None:
    specs = [JobSpec(send, {"account": 1}), JobSpec(send, {"order": 1})]
    with django_assert_num_queries(0):
        for add in (lambda: add_job(send, {"order": 1}), lambda: add_job("send"), lambda: add_jobs(specs)):
            with pytest.raises(PayloadError, match="expected the field 'account'") as refused:
                add()
    assert str(refused.value) == (
        "specs[1]: payload: expected the field 'account', got the fields 'order': the limit 'account:{account}' of the "
        "task 'send' needs it."
    )
    with pytest.raises(PayloadError, match=r"specs\[1\]: payload: expected the field 'account'"):
        add_jobs(specs, returning=False)
    assert not Job.objects.exists()


def test_stored_numbers__replace_those_of_code_and_settings(settings: Any) -> None:
    settings.GRAPHILE_WORKER = {**settings.GRAPHILE_WORKER, "LIMITS": {"account:{account}": {"rate": "5/s"}}}

    def told() -> list[tuple[str, str, bool]]:
        with connection.cursor() as cursor:
            found = limit_statuses(cursor, place_of())
        return [(each.name, str(each.numbers), each.is_overridden) for each in found]

    assert told() == [("account:{account}", "3 at once, 5/s", False)]
    override_limit("account:{account}", LimitNumbers(concurrency=9), changed_by="root")
    assert told() == [("account:{account}", "9 at once", True)]
    override_limit("account:{account}", LimitNumbers(), changed_by="root")
    assert told() == [("account:{account}", "no limit", True)]
    with own_tasks():
        assert told() == [("account:{account}", "no limit", True)], "an operator finds it after the code is gone"
    assert reset_limit("account:{account}") is True
    assert reset_limit("account:{account}") is False
    assert told() == [("account:{account}", "3 at once, 5/s", False)]
    with pytest.raises(InvalidJobError, match="Did you mean 'account"):
        override_limit("account{account}", LimitNumbers(), changed_by="root")


def test_changed_numbers__let_a_claim_look_at_full_keys_again() -> None:
    park_job(make_key("account:{account}", "account:1"), "send")
    override_limit("account:{account}", LimitNumbers(concurrency=9), changed_by="root")
    with connection.cursor() as cursor:
        cursor.execute(f'select opens_at is not null from "{conf.current().schema}"._private_limit_keys')
        assert cursor.fetchone() == (True,)


@pytest.mark.django_db(transaction=True)
def test_changed_numbers__count_for_running_workers(wait_until: Any) -> None:
    """Of two jobs of a key one runs; when an operator allows two, the other starts, without a restart."""
    began: list[int] = []
    end = threading.Event()

    def hold(payload: Any) -> None:
        began.append(payload["number"])
        end.wait(60)

    held = task("hold", limit=Limit("held:{account}", concurrency=1))(hold)
    add_jobs([JobSpec(held, {"account": 1, "number": number}) for number in range(3)])
    worker = Worker(concurrency=5)
    worker.start()
    try:
        wait_until(lambda: began and _keys() == [("held:1", 2, 1)])
        override_limit("held:{account}", LimitNumbers(concurrency=2), changed_by="root")
        wait_until(lambda: len(began) == 2 and _keys() == [("held:1", 1, 2)])
    finally:
        end.set()
        worker.stop()


def _keys() -> list[tuple[str, int, int]]:
    with connection.cursor() as cursor:
        found = limited_keys.waiting_keys(cursor, schema=conf.current().schema, limit=5)
    return [(key.key_text, key.waiting, key.running) for key in found]
