from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from django_graphile_worker.worker.process.signal_handlers import handled_signals
from django_graphile_worker.worker.stop_request import WorkerStop

LONG = 20.0


@pytest.fixture
def request_to_stop() -> Iterator[WorkerStop]:
    request = WorkerStop()
    with handled_signals(request):
        yield request
    request.close()


def signal_to_another_thread(number: signal.Signals) -> None:
    """As if it came just as the main thread fell asleep: nothing interrupts its sleep."""

    main = threading.get_ident()

    def get_signal() -> None:
        while sys._current_frames()[main].f_code is not WorkerStop.wait.__code__:
            pass
        signal.pthread_kill(threading.get_ident(), number)

    threading.Thread(target=get_signal, daemon=True).start()


def test_a_signal_wakes_the_one_who_waits_whichever_thread_gets_it(request_to_stop: WorkerStop) -> None:
    signal_to_another_thread(signal.SIGTERM)
    began = time.monotonic()
    assert request_to_stop.wait(LONG)
    assert time.monotonic() - began < LONG / 2
    assert request_to_stop.reason == "SIGTERM"
    assert not request_to_stop.is_urgent


def test_a_signal_of_somebody_else_stops_nothing(request_to_stop: WorkerStop) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        signal_to_another_thread(signal.SIGUSR1)
        deadline = time.monotonic() + LONG
        while not heard and time.monotonic() < deadline:
            assert not request_to_stop.wait(0.1)
        assert not request_to_stop.wait(0.1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [signal.SIGUSR1]
