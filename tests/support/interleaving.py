"""Runs the steps of several sessions in a chosen order, with lock waits as the only clock.

A step ends when its statement has returned, or when PostgreSQL reports that the
session waits for another session. So an interleaving is the same every time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]
Step = Callable[[Connection], Any]
SECONDS_FOR_ONE_STEP = 30.0


class Session:
    """A connection whose statements run in a thread of its own."""

    def __init__(self, connection: Connection, watch: Callable[[int], bool]) -> None:
        self.connection = connection
        self._watch = watch
        self._thread = ThreadPoolExecutor(max_workers=1)
        self.last: Future[Any] | None = None

    @property
    def is_waiting(self) -> bool:
        return self.last is not None and not self.last.done()

    def start(self, step: Step) -> Future[Any]:
        """Begin a step, and return when it has ended or waits for another session."""
        assert not self.is_waiting, "Expected a session that has finished its last step."
        self.last = self._thread.submit(step, self.connection)
        self.settle()
        return self.last

    def settle(self) -> None:
        """Return when the step of the session has ended or waits."""
        deadline = time.monotonic() + SECONDS_FOR_ONE_STEP
        pid = self.connection.info.backend_pid
        while self.last is not None and not self.last.done():
            if self._watch(pid):
                return
            assert time.monotonic() < deadline, "Expected the step to finish or to wait for a lock."
            threading.Event().wait(0.0005)

    def close(self) -> None:
        self.connection.cancel_safe()
        self._thread.shutdown(wait=True)
        self.connection.close()


class Stage:
    """Sessions, and an observer that knows which session waits for which."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self.observer = connect()
        self._lock = threading.Lock()
        self.sessions: list[Session] = []

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *exception: object) -> None:
        for session in self.sessions:
            session.close()
        self.observer.close()

    def session(self) -> Session:
        session = Session(self._connect(), self._is_blocked)
        self.sessions.append(session)
        return session

    def settle(self) -> None:
        """Wait until each session has ended its step or waits."""
        for session in self.sessions:
            session.settle()

    def _is_blocked(self, pid: int) -> bool:
        row = self.observer.execute("select cardinality(pg_blocking_pids(%s)) > 0", [pid]).fetchone()
        return bool(row and row[0])


@dataclass
class Outcome:
    """The results and errors of the steps of an interleaving, by session."""

    order: tuple[int, ...]
    results: list[list[Any]] = field(default_factory=list)


def orders(scripts: Sequence[Sequence[object]]) -> Iterator[tuple[int, ...]]:
    """Return every order in which the steps of the scripts can follow each other."""

    def merge(left: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if not any(left):
            yield ()
        for index, count in enumerate(left):
            if count:
                rest = (*left[:index], count - 1, *left[index + 1 :])
                yield from ((index, *tail) for tail in merge(rest))

    return merge(tuple(len(script) for script in scripts))


def play(stage: Stage, scripts: Sequence[Sequence[Step]], order: Iterable[int]) -> Outcome | None:
    """Run the scripts in this order. Return None if a session has to wait at its turn: another order covers that."""
    sessions = stage.sessions
    queues = [iter(script) for script in scripts]
    outcome = Outcome(tuple(order), [[] for _ in scripts])
    is_possible = True
    for index in outcome.order:
        if sessions[index].is_waiting:
            is_possible = False
            break
        outcome.results[index].append(sessions[index].start(next(queues[index])))
        stage.settle()
    _finish(stage, queues, outcome)
    return outcome if is_possible else None


def _finish(stage: Stage, queues: list[Iterator[Step]], outcome: Outcome) -> None:
    """Run the remaining steps in any order, so that all sessions are idle before the next interleaving."""
    while any(session.is_waiting for session in stage.sessions):
        for index, queue in enumerate(queues):
            if not stage.sessions[index].is_waiting and (step := next(queue, None)):
                outcome.results[index].append(stage.sessions[index].start(step))
        stage.settle()
    for index, queue in enumerate(queues):
        for step in queue:
            outcome.results[index].append(stage.sessions[index].start(step))
            stage.settle()
