"""The server of the benchmarks flushes its writes."""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks import durable_server


def test_start__passes_the_settings_where_no_other_place_overrides_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(durable_server, "CHECKOUT", tmp_path)
    monkeypatch.setattr(durable_server, "_run", lambda data, *arguments: calls.append(arguments))
    monkeypatch.setattr(atexit, "register", lambda *arguments: None)
    monkeypatch.delenv(durable_server.OWNED, raising=False)
    url = durable_server.start()
    try:
        options = next(text for call in calls for text in call if text.startswith("--options="))
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert f"-c {setting}='on'" in options
        assert durable_server.is_owned()
        assert url.startswith("postgresql://")
    finally:
        os.environ.pop(durable_server.OWNED, None)
        Path(url.partition("host=")[2]).rmdir()


def test_end_leftovers__stops_only_the_servers_of_processes_that_have_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended: list[Any] = []
    monkeypatch.setattr(durable_server, "_end", ended.append)
    nobody = max(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()) + 4_000_000
    for owner in (os.getpid(), nobody):
        (tmp_path / f"postgres-{owner}").mkdir()
    durable_server._end_leftovers(tmp_path)
    assert [path.name for path in ended] == [f"postgres-{nobody}"]
