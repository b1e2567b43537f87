"""The worker of ``run_jobs()``: which statements claim jobs, and what holds from one call to the next."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import psycopg
from django.db import connections, transaction
from django.test import TestCase, TransactionTestCase, override_settings

from django_graphile_worker import add_job
from django_graphile_worker.testing import run_jobs
from tests.support.own_schema import SCHEMA
from tests.support.stepped_worker import own_tasks


def note(payload: Any) -> Any:
    return payload


def urgent(payload: Any) -> Any:
    return payload


@contextmanager
def statements() -> Iterator[list[str]]:
    """List the names of the worker's statements."""
    names: list[str] = []
    execute = psycopg.Cursor.execute

    def listed(cursor: Any, text: Any, *arguments: Any, **options: Any) -> Any:
        names.extend(re.findall(r"gw:([\w-]+)", text if isinstance(text, str) else ""))
        return execute(cursor, text, *arguments, **options)

    with mock.patch.object(psycopg.Cursor, "execute", listed):
        yield names


class TestClaims(TestCase):
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


class TestNextCall(TestCase):
    """What a test changes between two calls counts for the second."""

    def test_coroutines__have_an_event_loop_in_each_call(self) -> None:
        async def wait(payload: Any) -> Any:
            return payload

        with own_tasks(note, wait):
            for identifier in ("note", "note", "wait", "wait"):
                add_job(identifier, identifier)
                assert [ran.result for ran in run_jobs()] == [identifier]

    def test_changed_tasks_and_settings__count(self) -> None:
        with own_tasks(note):
            run_jobs()
            with own_tasks(note, urgent):
                add_job("urgent")
                assert len(run_jobs()) == 1
            with override_settings(GRAPHILE_WORKER={**SCHEMA, "FORBIDDEN_FLAGS": ["later"]}):
                add_job("note", flags=["later"])
                assert run_jobs() == []
            assert len(run_jobs()) == 1

    def test_replaced_task__runs_as_it_is_now(self) -> None:
        with own_tasks(note):
            add_job("note", 1)
            assert [ran.result for ran in run_jobs()] == [1]

        def note_twice(payload: int) -> int:
            return 2 * payload

        note_twice.__name__ = "note"
        with own_tasks(note_twice):
            add_job("note", 1)
            assert [ran.result for ran in run_jobs()] == [2]


class TestForks(TransactionTestCase):
    def test_forked_process__runs_jobs_of_its_own(self) -> None:
        """A worker takes a process that a job forked for a copy of itself, and ends it."""
        with own_tasks(note):
            add_job("note", 1)
            assert len(run_jobs()) == 1
            process = os.fork()
            if process == 0:
                # The connection is the parent's: drop it, and send nothing on it.
                connections["default"].connection = None
                add_job("note", 2)
                os._exit(len(run_jobs()))
            _, status = os.waitpid(process, 0)
        assert os.waitstatus_to_exitcode(status) == 1
