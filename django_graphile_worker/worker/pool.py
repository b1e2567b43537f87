"""The threads that run jobs, and the few jobs that wait for one of them.

A slot runs one stretch at a time. What waits here is already claimed, so it must be
little, move soon, and be given back when it does not.

Fetching is a duty that the threads take in turn: there is one more of them than may run
jobs at once. Who fetched a lone job may keep it, and runs it while another fetches on;
to wake a thread for it would take longer than to claim it took the worker.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue

from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.outcomes import Interrupted, Outcome
from django_graphile_worker.worker.work_units import WorkUnit

Run = Callable[[Claim], Outcome]
# Returns whether it is to be continued, by another thread.
Duty = Callable[[], bool]


class SlotPool:
    """As many threads as jobs may run at once, started as they are needed."""

    def __init__(
        self,
        concurrency: int,
        *,
        run: Run,
        on_outcome: Callable[[Outcome], None],
        on_queue_done: Callable[[HeldQueue], None],
        on_hungry: Callable[[], None],
        on_thread_end: Callable[[], None] = lambda: None,
        may_begin: Callable[[Claim], bool] = lambda claim: True,
    ) -> None:
        self.concurrency = concurrency
        self._run = run
        self._may_begin = may_begin
        self._on_outcome = on_outcome
        self._on_queue_done = on_queue_done
        self._on_hungry = on_hungry
        self._on_thread_end = on_thread_end
        # Who waits, in order. Slots help themselves; one that finds nobody rests until a call comes.
        self._line: deque[WorkUnit] = deque()
        self._calls: SimpleQueue[bool] = SimpleQueue()
        threads = concurrency + 1
        # How many threads rest and have not been called. A thread that is about to rest looks for work and counts
        # itself under the lock; whoever calls brings the work first and counts under the lock. So either the caller
        # finds the thread, or the thread finds the work.
        self._resting = 0
        self._counting = threading.Lock()
        # Whether a resting thread is set aside to go on with the duty.
        self._has_successor = False
        self._current: list[WorkUnit | None] = [None] * threads
        self._duties: deque[Duty] = deque()
        self._thread_on_duty: int | None = None
        self._kept: WorkUnit | None = None
        self._has_duty = False
        # Jobs, not stretches: one that is on its way from the queue to a slot is seen in neither.
        self._submitted = 0
        self._taken_back = 0
        # The same in bytes of payload, for jobs that have not begun.
        self._submitted_size = 0
        self._taken_back_size = 0
        self._begun_size = [0] * threads
        self._finished = [0] * threads
        self._busy_seconds = [0.0] * threads
        self._threads: list[threading.Thread] = []
        # Told once per meal: the fetcher clears it when it goes shopping.
        self.low_water = 0
        self.is_hungry = True
        self._is_abandoned = False
        self._is_ending = False
        self._changed = threading.Event()
        # To be held while jobs are taken back and handed over: a slot that finds its stretch
        # empty must not let the queue go before the rest of its jobs is on its way.
        self.taking_back = threading.Lock()

    @property
    def backlog(self) -> int:
        """Stretches that wait for a slot."""
        return len(self._line)

    @property
    def free(self) -> int:
        """Slots with nothing to do, not counting what waits for them."""
        busy = sum(stretch is not None for stretch in self._current)
        return max(self.concurrency - busy - self.backlog, 0)

    @property
    def vacant(self) -> int:
        """Slots with nothing to do, if nobody waits at all."""
        if not any(self._current):
            return 0 if self._line else self.concurrency
        busy = [stretch for stretch in self._current if stretch is not None]
        if self._line or any(stretch.claims for stretch in busy):
            return 0
        return self.concurrency - len(busy)

    @property
    def waiting_size(self) -> int:
        """The bytes of payload of jobs that are claimed and have not begun."""
        return self._submitted_size - self._taken_back_size - sum(self._begun_size)

    @property
    def is_idle(self) -> bool:
        ended = self._taken_back + sum(self._finished)
        return self._submitted == ended and not any(self._current)

    def totals(self) -> tuple[int, float]:
        """Jobs finished so far, and the seconds they took."""
        return sum(self._finished), sum(self._busy_seconds)

    @property
    def has_waiting(self) -> bool:
        """Is there anything claimed that has not begun?"""
        return self.backlog > 0 or any(stretch is not None and stretch.claims for stretch in self._current)

    def submit(self, stretches: Sequence[WorkUnit], *, callers: int) -> None:
        """Let these wait, and call so many slots: for short jobs a few are quicker than all.

        Python runs one thread at a time. Ten that wake up to run ten jobs of ten
        microseconds mostly wait for each other, and so does the one who claims.
        """
        self._submitted += sum(len(stretch.claims) for stretch in stretches)
        self._submitted_size += sum(stretch.size for stretch in stretches)
        self._line.extend(stretches)
        self.call(min(callers, len(stretches)))

    def call(self, slots: int) -> None:
        """Wake resting slots, or start new ones. Who does not rest looks for work by itself."""
        with self._counting:
            while self._resting < slots and self._add_thread():
                pass
            called = min(slots, self._resting)
            self._resting -= called
            for _ in range(called):
                self._calls.put(True)

    def assign(self, duty: Duty) -> None:
        """Have one of the threads do this, beside those that run jobs."""
        self._has_duty = True
        self._duties.append(duty)
        self.call(1)

    def keep(self, stretch: WorkUnit) -> bool:
        """To be called by the thread on duty: it runs these itself, once another goes on with the duty.

        Only while nobody waits and a slot is free: then there is a thread to go on.
        """
        if self._thread_on_duty != threading.get_ident():
            return False
        with self._counting:
            if self._resting or self._add_thread():
                self._resting -= 1
                self._has_successor = True
            elif len(self._threads) < self._most_threads:
                return False
        self._submitted += len(stretch.claims)
        self._submitted_size += stretch.size
        self._kept = stretch
        return True

    @property
    def has_kept(self) -> bool:
        """Has the thread on duty something of its own to run?"""
        return self._kept is not None

    @property
    def could_do_more(self) -> bool:
        """Does somebody wait although a slot rests?"""
        return bool(self._line) and (self._resting > 0 or len(self._threads) < self._most_threads)

    @property
    def _most_threads(self) -> int:
        return self.concurrency + self._has_duty

    def take_back(self, *, waited_longer_than: float = 0.0) -> list[WorkUnit]:
        """Jobs that wait: of slots that are busy, the rest of their stretch; and the backlog."""
        horizon = time.monotonic() - waited_longer_than
        taken = [
            WorkUnit(rest, None, stretch.submitted_at)
            for stretch in self._current
            if stretch is not None and stretch.submitted_at <= horizon and (rest := stretch.take_back())
        ]
        taken += self._drain(horizon)
        self._taken_back += sum(len(stretch.claims) for stretch in taken)
        self._taken_back_size += sum(stretch.size for stretch in taken)
        return taken

    def _drain(self, horizon: float) -> list[WorkUnit]:
        taken: list[WorkUnit] = []
        while self._line and self._line[0].submitted_at <= horizon:
            try:
                taken.append(self._line.popleft())
            except IndexError:
                break
        return taken

    def running(self) -> int:
        return sum(stretch is not None for stretch in self._current)

    def stop(self) -> None:
        """Let every thread end after what it is doing."""
        self._is_ending = True
        for _ in self._threads:
            self._calls.put(True)

    def abandon(self, claims: Iterable[Claim]) -> list[Outcome | HeldQueue]:
        """Stop listening to jobs that would not end: they go back as if they had not begun."""
        self._is_abandoned = True
        queues = {stretch.queue for stretch in self._current if stretch is not None}
        outcomes = [Interrupted(claim, 0.0) for claim in claims]
        return [*outcomes, *(queue for queue in queues if queue is not None)]

    def wait_for_change(self, timeout: float) -> None:
        """Wait until a slot has finished something, this long at most."""
        self._changed.clear()
        self._changed.wait(timeout)

    def join(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _add_thread(self) -> bool:
        """Start a thread that rests, unless there are enough; to be called under the lock."""
        place = len(self._threads)
        if place >= self._most_threads:
            return False
        thread = threading.Thread(target=self._work, args=(place,), name=f"graphile-worker-slot-{place}", daemon=True)
        # In the list first: it may be the next to add one.
        self._threads.append(thread)
        try:
            thread.start()
        except RuntimeError:
            # The system has no more to give; those that there are do the work.
            self._threads.remove(thread)
            if not self._threads:
                raise
            return False
        self._resting += 1
        return True

    def _work(self, place: int) -> None:
        line, current = self._line, self._current
        try:
            self._calls.get()
            while True:
                # First, or jobs would run on every thread, and nobody fetched until the first of them ends.
                if self._duties:
                    if self._do_duty(place):
                        continue
                    return
                try:
                    current[place] = stretch = line.popleft()
                except IndexError:
                    if self._is_ending:
                        return
                    self._rest()
                    continue
                self._run_all(place, stretch)
        finally:
            self._on_thread_end()

    def _do_duty(self, place: int) -> bool:
        """Fetch until there is something to run; False when there is nothing to fetch any more."""
        try:
            duty = self._duties.popleft()
        except IndexError:
            return True
        self._thread_on_duty = threading.get_ident()
        is_to_be_continued = duty()
        stretch, self._kept = self._kept, None
        # Busy before the next one looks for free slots.
        self._current[place] = stretch
        if is_to_be_continued:
            self._duties.append(duty)
        self._hand_on(is_to_be_continued)
        if stretch is not None:
            self._run_all(place, stretch)
        return is_to_be_continued

    def _hand_on(self, is_to_be_continued: bool) -> None:
        """Call the thread that was set aside for the duty, or any other; it is not needed when the duty is over."""
        with self._counting:
            has_successor, self._has_successor = self._has_successor, False
            if has_successor and is_to_be_continued:
                self._calls.put(True)
            else:
                self._resting += has_successor
        if is_to_be_continued and not has_successor:
            self.call(1)

    def _run_all(self, place: int, stretch: WorkUnit) -> None:
        self._call_if_hungry()
        self._run_stretch(place, stretch)
        self._current[place] = None
        if not self._changed.is_set():
            self._changed.set()
        self._call_if_hungry()

    def _call_if_hungry(self) -> None:
        if not self.is_hungry and len(self._line) <= self.low_water:
            self.is_hungry = True
            self._on_hungry()

    def _rest(self) -> None:
        with self._counting:
            if self._line or self._duties or self._is_ending:
                return
            self._resting += 1
        self._calls.get()

    def _run_stretch(self, place: int, stretch: WorkUnit) -> None:
        claims = stretch.claims
        while claims:
            try:
                claim = claims.pop()
            except IndexError:
                break
            self._begun_size[place] += len(claim.payload_text)
            # A worker that was suspended holds claims that another worker may have by now.
            outcome = self._run(claim) if self._may_begin(claim) else Interrupted(claim, 0.0, has_begun=False)
            if self._is_abandoned:
                return
            self._busy_seconds[place] += outcome.duration
            self._on_outcome(outcome)
            # Not kept while the next job runs: it has the result, which may be large.
            del outcome
            # Only now: who sees it finished must find its outcome handed over.
            self._finished[place] += 1
        if stretch.queue is not None:
            with self.taking_back:
                self._on_queue_done(stretch.queue)
