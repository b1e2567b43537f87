"""The code with which a child of the supervisor begins."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from django_graphile_worker.worker.process import supervisor
from django_graphile_worker.worker.stop_request import WorkerStop


@pytest.fixture(autouse=True)
def former_default() -> Iterator[None]:
    """The garbage collector of Python 3.11, whatever the version."""
    thresholds = gc.get_threshold()
    gc.set_threshold(700)
    yield
    gc.set_threshold(*thresholds)


def test_child__has_garbage_collected_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def main(request: WorkerStop, arguments: dict[str, Any]) -> int:
        seen.append(gc.get_threshold()[0])
        return 5

    monkeypatch.setattr(os, "setpgid", lambda process, group: None)
    monkeypatch.setattr(supervisor, "handled_signals", lambda request, **options: nullcontext())
    monkeypatch.setattr(supervisor, "end_process", lambda request, code: request.close())
    receiving, sending = multiprocessing.Pipe(duplex=False)
    with receiving, sending, pytest.raises(SystemExit):
        supervisor.run_child(main, {}, sending)
    assert seen == [2000]
