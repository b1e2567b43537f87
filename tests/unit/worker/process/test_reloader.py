"""``runworker --reload``: what stops the worker, and which files are watched."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_graphile_worker.worker.process import reloader
from django_graphile_worker.worker.process.reloader import WatchedRequest


def test_snapshot__has_the_files_beside_the_projects_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("def :")
    monkeypatch.setattr(reloader, "_own_directories", lambda: {tmp_path})
    assert (tmp_path / "broken.py").resolve() in {path.resolve() for path in reloader._snapshot()}


@pytest.fixture
def request_to_stop() -> Iterator[WatchedRequest]:
    request = WatchedRequest()
    yield request
    request.close()


def test_signals__of_both_processes_are_the_same_requests(request_to_stop: WatchedRequest) -> None:
    request_to_stop.handle_signal(signal.SIGINT, None)
    request_to_stop.report(signal.SIGINT)
    was_urgent = request_to_stop.is_urgent
    request_to_stop.report(signal.SIGINT)
    assert (was_urgent, request_to_stop.is_urgent) == (False, True)
    assert not request_to_stop.is_for_change


def test_change_of_code__is_known_from_a_signal(request_to_stop: WatchedRequest) -> None:
    request_to_stop("code has changed")
    assert request_to_stop.is_for_change


def test_reloader_that_is_gone__stops_the_worker(request_to_stop: WatchedRequest) -> None:
    reader, writer = os.pipe()
    os.write(writer, bytes([signal.SIGTERM]))
    os.close(writer)
    thread = threading.Thread(target=reloader._listen, args=(reader, request_to_stop))
    thread.start()
    thread.join(60)
    os.close(reader)
    assert request_to_stop.reasons == ["SIGTERM", "the process that started the worker is gone"]
