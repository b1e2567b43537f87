"""The queue of the log, and the thread that writes it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import pytest

from django_graphile_worker.logs import console
from django_graphile_worker.logs.console import LineWriter

TIMEOUT = 60.0


class Output:
    """What was written, in batches; writing can be blocked, as a full pipe blocks it."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.threads: set[str] = set()
        self.is_open = threading.Event()
        self.is_open.set()
        self.is_entered = threading.Event()

    def __call__(self, lines: list[str]) -> None:
        self.is_entered.set()
        assert self.is_open.wait(TIMEOUT)
        self.threads.add(threading.current_thread().name)
        self.batches.append(lines)

    @property
    def lines(self) -> list[str]:
        return [line for batch in self.batches for line in batch]


@pytest.fixture
def output() -> Output:
    return Output()


@pytest.fixture
def writer(output: Output) -> LineWriter[str]:
    return LineWriter(output)


@pytest.fixture
def pausing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the writer pause for ever after its first batch."""
    monkeypatch.setattr(console, "PAUSE", 3_600.0)


def test_lines__are_written_by_one_thread_in_order(
    writer: LineWriter[str], output: Output, wait_until: Callable[..., None]
) -> None:
    lines = [str(number) for number in range(3_000)]
    for line in lines:
        writer.put(line)
    wait_until(lambda: len(output.lines) == len(lines))
    assert output.lines == lines
    assert output.threads == {"graphile-worker-log"}
    assert len(output.batches) < len(lines) / 10


def test_lines_of_a_pause__are_written_together(
    writer: LineWriter[str], output: Output, pausing: None, wait_until: Callable[..., None]
) -> None:
    writer.put("first")
    wait_until(lambda: output.lines)
    for line in ("second", "third"):
        writer.put(line)
    assert output.batches == [["first"]]
    writer.flush()
    assert output.batches == [["first"], ["second", "third"]]


def test_many_threads__lose_no_line_and_keep_their_own_order(writer: LineWriter[str], output: Output) -> None:
    def put(place: int) -> None:
        for number in range(2_000):
            writer.put(f"{place} {number}")

    threads = [threading.Thread(target=put, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert len(output.lines) == 8_000
    for place in range(4):
        assert [line for line in output.lines if line[0] == str(place)] == [f"{place} {n}" for n in range(2_000)]


def test_output_that_blocks__blocks_the_threads_before_the_queue_grows_without_limit(
    writer: LineWriter[str], output: Output, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    monkeypatch.setattr(console, "LONGEST_QUEUE", 10)
    output.is_open.clear()
    writer.put("first")
    assert output.is_entered.wait(TIMEOUT)
    count = 0

    def put() -> None:
        nonlocal count
        for number in range(100):
            writer.put(str(number))
            count = number + 1

    thread = threading.Thread(target=put)
    thread.start()
    wait_until(lambda: len(writer._queue) == 11)
    thread.join(0.05)
    assert (thread.is_alive(), count) == (True, 10)
    output.is_open.set()
    thread.join(TIMEOUT)
    writer.flush()
    assert output.lines == ["first", *map(str, range(100))]


def test_wait__does_not_wait_for_an_output_that_blocks(writer: LineWriter[str], output: Output) -> None:
    output.is_open.clear()
    writer.put("first")
    assert output.is_entered.wait(TIMEOUT)
    writer.wait(0.01)
    assert output.lines == []
    output.is_open.set()


def test_closed_writer__writes_every_line_at_once(
    writer: LineWriter[str], output: Output, pausing: None, wait_until: Callable[..., None]
) -> None:
    writer.put("first")
    wait_until(lambda: output.lines)
    writer.put("second")
    writer.close()
    assert output.lines == ["first", "second"]
    writer.put("third")
    assert output.lines == ["first", "second", "third"]


def test_forked_process__drops_the_lines_that_its_parent_writes_and_writes_its_own_at_once(
    writer: LineWriter[str], output: Output, pausing: None, wait_until: Callable[..., None]
) -> None:
    writer.put("first")
    wait_until(lambda: output.lines)
    writer.put("the parent's")
    # The thread that writes does not exist in the child, and may hold the lock for ever.
    locked = threading.Event()

    def hold() -> None:
        writer._writing.acquire()
        locked.set()

    threading.Thread(target=hold).start()
    assert locked.wait(TIMEOUT)
    writer.forget()
    child = threading.Thread(target=writer.put, args=("the child's",), daemon=True)
    child.start()
    child.join(TIMEOUT)
    assert output.lines == ["first", "the child's"]


def test_line_that_is_logged_while_its_thread_writes__is_no_deadlock() -> None:
    """As by a signal handler."""
    written: list[str] = []

    def write(lines: list[str]) -> None:
        if lines == ["outer"]:
            nested.write("inner")
        written.extend(lines)

    nested: LineWriter[str] = LineWriter(write)
    nested.write("outer")
    assert sorted(written) == ["inner", "outer"]


def test_output_that_raises__does_not_end_the_writer(wait_until: Callable[..., None]) -> None:
    written: list[str] = []

    def write(lines: list[str]) -> None:
        written.extend(lines)
        raise SystemExit

    writer: LineWriter[str] = LineWriter(write)
    writer.put("first")
    wait_until(lambda: writer._wants_call and written)
    writer.put("second")
    wait_until(lambda: len(written) == 2)


def test_line_that_is_put_in_while_the_writer_is_about_to_wait__is_written(
    writer: LineWriter[str], output: Output, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    monkeypatch.setattr(console, "PAUSE", 0.0)

    class Queue(deque[str]):
        """A queue into which a line is put just after the writer has found it empty."""

        is_late = False

        def __bool__(self) -> bool:
            was_filled = len(self) > 0
            if not was_filled and not self.is_late and writer._calls.empty() and not writer._wants_call:
                self.is_late = True
                writer.put("second")
            return was_filled

    writer._queue = Queue()
    writer.put("first")
    wait_until(lambda: output.lines == ["first", "second"])
