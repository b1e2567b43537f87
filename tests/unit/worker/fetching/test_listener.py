"""A wake-up for a thread that waits for a socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from django_graphile_worker.worker.fetching.listener import Wakeup
from tests.conftest import WAIT_TIMEOUT

Wait = Callable[..., None]


def never() -> bool:
    return False


@pytest.fixture
def wakeup() -> Iterator[Wakeup]:
    wakeup = Wakeup()
    yield wakeup
    wakeup.close()


def test_a_wake_up_before_the_wait__counts_if_the_condition_says_so(wakeup: Wakeup) -> None:
    wakeup.wake()
    assert wakeup.wait(WAIT_TIMEOUT, unless=lambda: True)
    # Without a condition it is not remembered: the caller does that.
    assert not wakeup.wait(0, unless=never)


def test_wake__ends_the_wait_and_only_that(wakeup: Wakeup, wait_until: Wait) -> None:
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(wakeup.wait(WAIT_TIMEOUT, unless=never)))
    thread.start()
    wait_until(lambda: wakeup._is_waiting)
    wakeup.wake()
    wakeup.wake()
    thread.join(WAIT_TIMEOUT)
    assert answers == [True]
    assert not wakeup.wait(0, unless=never)


def test_input_on_the_socket__ends_the_wait(wakeup: Wakeup) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wakeup.watch(SimpleNamespace(pgconn=SimpleNamespace(socket=ours.fileno())))
        theirs.send(b"!")
        assert not wakeup.wait(WAIT_TIMEOUT, unless=never)
        wakeup.watch(None)


def test_a_socket_that_was_closed_before__is_forgotten(wakeup: Wakeup) -> None:
    ours, theirs = socket.socketpair()
    wakeup.watch(SimpleNamespace(pgconn=SimpleNamespace(socket=ours.fileno())))
    ours.close()
    theirs.close()
    wakeup.watch(None)
    assert not wakeup.wait(0, unless=never)


def test_close__leaves_nothing_open_and_harms_no_later_wake_up() -> None:
    wakeup = Wakeup()
    wakeup.close()
    wakeup.wait(0, unless=never)
    wakeup.close()
    wakeup._is_waiting = True
    wakeup.wake()
