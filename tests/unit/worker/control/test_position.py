"""Where a run is: the frames of the threads."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from django_graphile_worker.worker.control.position import frames_by_thread


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether the collector was enabled, each time that the frames were read."""
    found: list[bool] = []
    read = sys._current_frames

    def noted() -> dict[int, FrameType]:
        found.append(gc.isenabled())
        return read()

    monkeypatch.setattr(sys, "_current_frames", noted)
    was_enabled = gc.isenabled()
    yield found
    (gc.enable if was_enabled else gc.disable)()


def test_collector__is_off_while_frames_are_read(states: list[bool]) -> None:
    """A collection inside of the call may wait for a thread that waits for the call."""
    gc.enable()
    assert threading.get_ident() in frames_by_thread()
    assert (states, gc.isenabled()) == ([False], True)


def test_collector__stays_off_while_another_thread_reads_frames(states: list[bool]) -> None:
    gc.enable()
    readers = [threading.Thread(target=lambda: [frames_by_thread() for _ in range(200)]) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert (set(states), len(states), gc.isenabled()) == ({False}, 800, True)
