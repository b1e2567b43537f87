"""One unit of work, again and again: the loop that every part of a worker has."""

from __future__ import annotations

import math
import threading
import time

import pytest

from django_graphile_worker.worker.service import Service, Trouble


class Counter(Service):
    name = "counter"

    def __init__(self, delays: list[float | Exception], on_trouble: Trouble = lambda name, error, delay: None) -> None:
        super().__init__(on_trouble=on_trouble)
        self.delays = delays
        self.steps = 0
        self.stepped = threading.Semaphore(0)
        self.was_closed = threading.Event()

    def step(self) -> float:
        self.steps += 1
        self.stepped.release()
        delay = self.delays.pop(0) if self.delays else math.inf
        if isinstance(delay, Exception):
            raise delay
        return delay

    def close(self) -> None:
        self.was_closed.set()


def test_a_wake_up_ends_the_pause_and_one_during_a_step_is_not_lost() -> None:
    service = Counter([])
    service.start()
    assert service.stepped.acquire(timeout=60)
    service.wake()
    assert service.stepped.acquire(timeout=60)
    service.stop()
    assert service.join(60)


@pytest.mark.parametrize("event", ["the time", "a wake-up"])
def test_a_service_that_starts_later_begins_after_its_time_or_when_woken(event: str) -> None:
    service, began = Counter([]), time.monotonic()
    service.start(after=0.05 if event == "the time" else 600)
    if event == "a wake-up":
        service.wake()
    assert service.stepped.acquire(timeout=60)
    assert event == "a wake-up" or time.monotonic() - began >= 0.05
    service.stop()
    assert service.join(60)


def test_a_service_that_starts_at_this_moment_can_be_stopped_and_is_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    service, is_starting, has_stopped = Counter([]), threading.Event(), threading.Event()

    class SlowThread(threading.Thread):
        def start(self) -> None:
            is_starting.set()
            has_stopped.wait(0.5)
            super().start()

    starting = threading.Thread(target=service.start)
    monkeypatch.setattr(threading, "Thread", SlowThread)
    starting.start()
    assert is_starting.wait(60)
    assert not service.has_died
    service.stop()
    assert service.join(60)
    has_stopped.set()
    starting.join(60)
    assert service.join(60)


def test_a_stop_that_is_taken_for_the_call_of_a_step_ends_the_service_all_the_same() -> None:
    service = Counter([])

    class StoppedMeanwhile(threading.Event):
        def clear(self) -> None:
            service.stop()
            super().clear()

    service._woken = StoppedMeanwhile()
    service.wake()
    service.start()
    assert service.join(60)
    assert service.was_closed.is_set()


def test_an_error_is_told_and_tried_again_with_growing_patience() -> None:
    troubles: list[tuple[str, str, float]] = []
    service = Counter(
        [ValueError("first"), ValueError("second"), math.inf],
        on_trouble=lambda name, error, delay: troubles.append((name, str(error), delay)),
    )
    service.start()
    for _ in range(3):
        assert service.stepped.acquire(timeout=60)
    service.stop()
    assert service.join(60)
    assert [(name, text) for name, text, _ in troubles] == [("counter", "first"), ("counter", "second")]
    assert 0 < troubles[0][2] <= 0.1 < troubles[1][2] * 2 <= 0.4


def test_calls_do_not_shorten_the_wait_after_an_error() -> None:
    """Whatever made it fail calls again and again: a notification, a connection that is back."""
    delays: list[float] = []

    def trouble(name: str, error: BaseException, delay: float) -> None:
        delays.append(delay)
        service.wake()

    service = Counter([ValueError("again")] * 4, on_trouble=trouble)
    began = time.monotonic()
    service.start()
    for _ in range(5):
        assert service.stepped.acquire(timeout=60)
    assert time.monotonic() - began >= sum(delays)
    service.stop()
    assert service.join(60)


def test_a_hurried_service_tries_again_at_once_and_then_waits_again() -> None:
    delays: list[float] = []
    service = Counter([ValueError("no")] * 2, on_trouble=lambda name, error, delay: delays.append(delay))
    service._retry_delay = lambda: 600.0 if len(delays) < 1 else 0.001  # type: ignore[method-assign]
    service.start()
    assert service.stepped.acquire(timeout=60)
    service.hurry()
    for _ in range(2):
        assert service.stepped.acquire(timeout=60)
    service.stop()
    assert service.join(60)
    assert delays == [600.0, 0.001]


def test_start_and_stop_from_many_threads_leave_no_thread_behind() -> None:
    def hammer(service: Service) -> None:
        for _ in range(20):
            service.start()
            service.wake()
        service.stop()

    for _ in range(10):
        service = Counter([])
        threads = [threading.Thread(target=hammer, args=(service,)) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert service.join(60)
    assert not [thread for thread in threading.enumerate() if thread.name == "graphile-worker-counter"]
