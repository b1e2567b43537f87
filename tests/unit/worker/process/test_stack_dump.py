from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from django_graphile_worker.worker.process.signal_handlers import StackDump
from tests.faults.processes import Wait


def call(dump: StackDump) -> None:
    dump(signal.SIGUSR1, None)


def test_dump__has_the_stacks_of_the_other_threads(tmp_path: Path, wait_until: Wait) -> None:
    with (tmp_path / "out").open("w+") as out:
        call(StackDump(out))
        wait_until(lambda: "in call" in (tmp_path / "out").read_text())
    assert "Thread MainThread (most recent call last):" in (tmp_path / "out").read_text()


def test_stream_that_is_not_read__keeps_one_thread_and_not_more(wait_until: Wait) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writer, b"." * 4096)
    os.set_blocking(writer, True)
    before = set(_thread_ids())
    with os.fdopen(writer, "wb", buffering=0) as out:
        dump = StackDump(out)
        for _ in range(50):
            call(dump)
        wait_until(lambda: len(set(_thread_ids()) - before) == 1)
        os.set_blocking(reader, False)
        text = b""

        def is_written() -> bool:
            nonlocal text
            # Before the read: the writer may continue when the pipe has space again.
            is_over = not dump._is_writing.locked()
            with suppress(BlockingIOError):
                text += os.read(reader, 2**20)
            return is_over

        wait_until(is_written)
    os.close(reader)
    assert text.count(b"Stacks of process") == 1


def _thread_ids() -> list[str]:
    """Return the ids of the threads of this process, also of threads that ``threading`` does not know."""
    return [path.name for path in Path("/proc/self/task").iterdir()]
