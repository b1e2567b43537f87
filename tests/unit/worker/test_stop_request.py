"""Requests to stop a worker, and to have another process take its place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_graphile_worker.worker.stop_request import RETIRED, WorkerStop


@pytest.fixture
def request_to_stop() -> Iterator[WorkerStop]:
    state = WorkerStop()
    yield state
    state.close()


def test_left_thread__ends_the_wait_if_another_process_can_take_over(request_to_stop: WorkerStop) -> None:
    request_to_stop.on_retiring = lambda: None
    request_to_stop.note_left_thread()
    assert request_to_stop.must_retire
    assert request_to_stop.wait() is False
    # The process retires once, whatever else happens in it.
    request_to_stop.must_retire = False
    request_to_stop.note_left_thread()
    assert not request_to_stop.must_retire
    assert request_to_stop.leaves_jobs_behind


def test_left_thread__does_not_stop_a_process_without_a_supervisor(request_to_stop: WorkerStop) -> None:
    request_to_stop.note_left_thread()
    assert not request_to_stop.must_retire
    assert request_to_stop.wait(0) is False
    assert request_to_stop.leaves_jobs_behind, "the process must not wait for the thread at its end"


def test_signal_to_a_process_that_retires__lets_its_jobs_end(request_to_stop: WorkerStop) -> None:
    request_to_stop(RETIRED)
    request_to_stop("SIGTERM")
    assert not request_to_stop.is_urgent
    request_to_stop("SIGTERM")
    assert request_to_stop.is_urgent
