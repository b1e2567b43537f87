"""Writes the lines of a log from one thread, in the order in which they were put into its queue.

A line that a thread writes itself costs a system call, and Python lets another thread run meanwhile. With thousands of
jobs a second, their threads would spend most of their time waiting for each other.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

Line = TypeVar("Line")

# Seconds between two batches. An idle writer writes the first line at once; the lines of the next milliseconds are
# written together. If the process is killed, it loses no more than these lines.
PAUSE = 0.02
# With more lines than this in the queue, the thread that puts the next line in waits until they are written.
LONGEST_QUEUE = 5_000
# Lines that are written together.
LARGEST_BATCH = 1_000
# Seconds that a fork waits for the writer. A pipe may be full.
HOLD_TIMEOUT = 1.0


class LineWriter(Generic[Line]):
    """A queue of lines, and the thread that writes them, which starts with the first line."""

    def __init__(self, write: Callable[[list[Line]], None]) -> None:
        # Called by one thread at a time; must not raise.
        self._write = write
        self._queue: deque[Line] = deque()
        # Held while lines are removed from the queue and written, so that their order is kept. Reentrant, because a
        # signal handler may log while its thread writes.
        self._writing = threading.RLock()
        # Whether the next line has to call the writer. A writer that pauses finds the line by itself.
        self._wants_call = True
        self._calls: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._is_closed = False
        # Whether the current thread holds the writer.
        self._holding = threading.local()

    def put(self, line: Line) -> None:
        """Put a line into the queue. Called for every job, so it does as little as possible."""
        queue = self._queue
        queue.append(line)
        if self._wants_call:
            self._call()
        elif len(queue) > LONGEST_QUEUE:
            self.flush()

    def write(self, line: Line) -> None:
        """Write a line, after those that are in the queue, on the calling thread."""
        self._queue.append(line)
        self.flush()

    def flush(self) -> None:
        """Write the lines that are in the queue now, on the calling thread."""
        with self._writing:
            left = len(self._queue)
            while left > 0:
                count = min(left, LARGEST_BATCH)
                left -= count
                self._write(self._take(count))

    def wait(self, seconds: float) -> None:
        """Wait until the lines that are in the queue now are written, but no longer than this: a pipe may be full."""
        flushing = threading.Thread(target=self.flush, name="graphile-worker-log-flush", daemon=True)
        try:
            flushing.start()
        except RuntimeError:
            # No thread can be started.
            self.flush()
        else:
            flushing.join(seconds)

    def close(self) -> None:
        """Write what is in the queue, and every later line at once: the process ends, and its threads with it."""
        self._is_closed = self._wants_call = True
        self.flush()

    def hold(self) -> None:
        """Let no other thread write until ``release()``. Called before a fork.

        A forked process has a copy of the stream. If a thread of its parent were writing, the copy would be locked for
        ever, and would have the lines in its buffer.
        """
        self._holding.is_held = self._writing.acquire(timeout=HOLD_TIMEOUT)

    def release(self) -> None:
        """Let other threads write again. Called after a fork, by the thread that called ``hold()``."""
        if self._holding.is_held:
            self._writing.release()

    def forget(self) -> None:
        """Drop what is in the queue, and write every later line at once.

        Called in a forked process: it has a copy of the queue, which its parent writes, but not of the thread.
        """
        self._queue.clear()
        self._writing = threading.RLock()
        self._is_closed = self._wants_call = True

    def _take(self, count: int) -> list[Line]:
        # A nested call of flush(), by a signal handler, may have taken lines in between.
        return [self._queue.popleft() for _ in range(min(count, len(self._queue)))]

    def _call(self) -> None:
        if self._is_closed or (self._thread is None and not self._start()):
            self.flush()
            return
        # In this order: after the call, the writer may already wait again.
        self._wants_call = False
        self._calls.put(None)

    def _start(self) -> bool:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="graphile-worker-log", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    # The system allows no more threads, or the interpreter ends.
                    return False
                self._thread = thread
            return True

    def _run(self) -> None:
        while not self._is_closed:
            if self._queue:
                # The thread must not end, whatever a stream raises that the project has put in place.
                with contextlib.suppress(BaseException):
                    self.flush()
                # The lines of the next moments are written together.
                time.sleep(PAUSE)
                continue
            self._wants_call = True
            # Checked again: a line that was put in before the assignment has made no call.
            if not self._queue:
                self._calls.get()
            self._wants_call = False
        self._wants_call = True
