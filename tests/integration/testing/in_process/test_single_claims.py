"""The statements with which ``run_jobs()`` finds jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

from django.db import transaction
from django.test import TestCase

from django_graphile_worker import add_job
from django_graphile_worker.testing import run_jobs
from django_graphile_worker.testing.in_process.session_cursor import SessionCursor
from tests.support.stepped_worker import own_tasks


def note(payload: Any) -> Any:
    return payload


def urgent(payload: Any) -> Any:
    return payload


@contextmanager
def statements() -> Iterator[list[str]]:
    """List the names of the worker's statements."""
    names: list[str] = []
    execute = SessionCursor.execute_numbered

    def listed(cursor: SessionCursor, text: str, parameters: Any) -> Any:
        names.extend(re.findall(r"gw:([\w-]+)", text))
        return execute(cursor, text, parameters)

    with mock.patch.object(SessionCursor, "execute_numbered", listed):
        yield names


class TestSingleClaims(TestCase):
    def test_one_job__takes_three_statements(self) -> None:
        with own_tasks(note):
            run_jobs()
            add_job("note")
            with statements() as names:
                assert len(run_jobs()) == 1
        assert names == ["fast_claim", "complete", "first_due"]

    def test_no_job__takes_two(self) -> None:
        with own_tasks(note):
            run_jobs()
            add_job("note", run_at=timedelta(days=1))
            with statements() as names:
                assert run_jobs() == []
        assert names == ["fast_claim", "first_due"]

    def test_several_jobs__are_claimed_in_the_order_of_a_worker(self) -> None:
        with own_tasks(note, urgent), statements() as names:
            add_job("note", 2)
            add_job("urgent", 1, priority=-1)
            add_job("note", 3, queue_name="mail")
            assert [ran.payload for ran in run_jobs()] == [1, 2, 3]
        assert names.count("claim") == 3

    def test_names_that_a_rollback_has_removed__are_read_again(self) -> None:
        with own_tasks(note, urgent):
            with transaction.atomic():
                add_job("note", 1)
                add_job("urgent", 2)
                assert len(run_jobs()) == 2
                transaction.set_rollback(True)
            add_job("note", 1)
            add_job("urgent", 0, priority=-1)
            assert [ran.payload for ran in run_jobs()] == [0, 1]
            add_job("urgent", 3)
            assert [ran.payload for ran in run_jobs()] == [3]
