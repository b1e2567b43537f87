"""Signals are sent in order, from a thread of their own."""

from __future__ import annotations

import math
from unittest.mock import Mock

import pytest
from django.dispatch import Signal

from django_graphile_worker.worker.reporting.reports import SignalSender


def make_sender() -> SignalSender:
    worker = Mock()
    worker.reports.check_outage.return_value = math.inf
    return SignalSender(worker, object)


def test_receiver_that_raises__keeps_no_other_from_its_signal() -> None:
    heard: list[int] = []
    happened = Signal()

    def bad(**kwargs: object) -> None:
        raise RuntimeError("a receiver")

    def good(number: int, **kwargs: object) -> None:
        heard.append(number)

    happened.connect(bad)
    happened.connect(good)
    sender = make_sender()
    sender.send(happened, number=1)
    sender.send(happened, number=2)
    # On its own thread, as ever: the connections that it looks after are not those of the tests before.
    sender.start()
    sender.stop()
    assert sender.join(60)
    assert heard == [1, 2]


def test_call_that_raises__is_logged_and_keeps_no_other_from_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[int] = []

    def bad() -> None:
        raise SystemExit("a receiver")

    sender = make_sender()
    sender.call(bad)
    sender.call(heard.append, 1)
    sender.attempt()
    sender.attempt()
    assert heard == [1]
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == ["signal-sender failed"]


def test_signal_without_receivers__is_not_kept() -> None:
    sender = make_sender()
    sender.send(Signal(), number=1)
    assert not sender.has_queued
