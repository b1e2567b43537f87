from __future__ import annotations

from typing import Any

from django_graphile_worker.signals import NamedSignal


def _receive(**kwargs: Any) -> None: ...


def test_signal__is_heard_when_it_has_a_receiver() -> None:
    signal = NamedSignal("job")
    assert not signal.is_heard()
    signal.connect(_receive)
    assert signal.is_heard()


def test_muted_signal__is_heard_only_while_its_one_receiver_is_active() -> None:
    signal = NamedSignal("job")
    signal.connect(_receive, dispatch_uid="log")
    signal.mute_unless("log", lambda *, wanted=True, **kwargs: wanted)
    assert signal.is_heard()
    assert signal.is_heard(wanted=True)
    assert not signal.is_heard(wanted=False)


def test_signal__is_sent_without_a_lock() -> None:
    signal, received = NamedSignal("job"), []

    def receive(**arguments: Any) -> None:
        received.append(arguments["job"])

    signal.connect(receive)
    signal.send_robust(NamedSignal, job=1)
    with signal.lock:
        signal.send_robust(NamedSignal, job=2)
    assert received == [1, 2]
