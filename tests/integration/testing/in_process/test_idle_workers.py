"""The in-process worker stays for the next call of ``run_jobs()``, as long as nothing that it depends on changes."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import pytest
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django.db import connections
from django.test import TestCase, TransactionTestCase, override_settings

from django_graphile_worker import add_job
from django_graphile_worker.routing import place_of
from django_graphile_worker.testing import jobs, run_jobs
from django_graphile_worker.testing.in_process import idle_workers
from django_graphile_worker.testing.in_process.in_process_worker import InProcessWorker
from tests.support.own_schema import SCHEMA
from tests.support.stepped_worker import own_tasks


def note(payload: Any) -> Any:
    return payload


def other(payload: Any) -> None:
    """Do nothing."""


def fails(payload: Any) -> None:
    raise ValueError("no")


class InstanceCache(BaseCache):
    """A cache whose values are gone with the object."""

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.values: dict[str, Any] = {}

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        return self.values.get(key, default)

    def add(self, key: str, value: Any, timeout: Any = None, version: int | None = None) -> bool:
        return self.values.setdefault(key, value) is value


def the_idle_worker() -> InProcessWorker | None:
    place = place_of()
    return idle_workers._thread.workers.get((place.using, place.installation))


class TestIdleWorkers(TestCase):
    def test_next_call__has_the_same_worker(self) -> None:
        with own_tasks(note):
            run_jobs()
            first = the_idle_worker()
            add_job("note", 1)
            assert [ran.result for ran in run_jobs()] == [1]
            assert the_idle_worker() is first is not None

    def test_executor__is_kept_until_a_task_needs_an_event_loop(self) -> None:
        async def wait(payload: Any) -> Any:
            return payload

        executors = []
        with own_tasks(note, wait):
            for identifier in ("note", "note", "wait", "wait"):
                add_job(identifier, identifier)
                assert [ran.result for ran in run_jobs()] == [identifier]
                worker = the_idle_worker()
                assert worker is not None
                executors.append((worker._executor, worker._kept_executor is not None))
        assert executors[0] == executors[1] == (executors[0][0], True)
        assert not executors[2][1]
        assert executors[2][0] is not executors[3][0], "the loop of the executor before is closed"

    def test_changed_options_of_a_task__count_for_the_next_call(self) -> None:
        with own_tasks(note) as (task,):
            for is_atomic in (False, True, False):
                with mock.patch.object(task, "atomic", is_atomic):
                    add_job("note")
                    assert [ran.outcome for ran in run_jobs()] == ["succeeded"]
                    assert jobs() == [], "its row is gone"

    def test_changed_caches__are_those_of_the_test(self) -> None:
        def remembers(payload: Any) -> Any:
            return caches["default"].get_or_set("first", payload)

        with own_tasks(remembers):
            run_jobs()
            with override_settings(CACHES={"default": {"BACKEND": f"{__name__}.{InstanceCache.__name__}"}}):
                add_job("remembers", 1)
                add_job("remembers", 2)
                assert [ran.result for ran in run_jobs()] == [1, 1]
                assert caches["default"].get("first") == 1

    def test_changed_tasks_and_settings__have_another(self) -> None:
        with own_tasks(note):
            run_jobs()
            first = the_idle_worker()
            with own_tasks(note, other):
                add_job("other")
                assert len(run_jobs()) == 1
                second = the_idle_worker()
            with override_settings(GRAPHILE_WORKER={**SCHEMA, "FORBIDDEN_FLAGS": ["later"]}):
                add_job("note", flags=["later"])
                assert run_jobs() == []
                third = the_idle_worker()
            assert len(run_jobs()) == 1
        assert len({id(worker) for worker in (first, second, third, the_idle_worker())}) == 4

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

    def test_call_that_raised_an_error__leaves_none(self) -> None:
        with own_tasks(fails):
            add_job("fails")
            with pytest.raises(ValueError, match="no"):
                run_jobs()
            assert the_idle_worker() is None

    def test_another_connection__has_another(self) -> None:
        with own_tasks(note):
            run_jobs()
            first = the_idle_worker()
            assert first is not None
            place, tasks = first.place, first._all_tasks
            assert first.is_for(place, tasks)
            wrapper = connections["default"]
            connections["default"] = wrapper.copy()
            try:
                assert not first.is_for(place, tasks)
            finally:
                connections["default"] = wrapper


class TestForks(TransactionTestCase):
    def test_forked_process__makes_a_worker_of_its_own(self) -> None:
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
