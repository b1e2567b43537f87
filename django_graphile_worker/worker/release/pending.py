"""Results that the database has not accepted yet: the results to send next, and the results that it rejected."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from django_graphile_worker.sql.releases import HeldQueue
from django_graphile_worker.worker.outcomes import Cancelled, Expired, Failed, Interrupted, Outcome, Recorded, Succeeded

# Seconds until a result that the database rejected is sent again.
REJECTED_DELAY = 5.0
# A result that is rejected again although others were accepted meanwhile is itself the problem. All such results
# together take at most this share of the releaser's time, but no result waits longer than the longest delay: the cause
# of its rejection may have passed.
SHARE_OF_REJECTED = 0.1
LONGEST_DELAY = 30.0
# A worker that stops waits for the rejected results: it sends each result this many times more, at this shorter delay,
# and then gives up.
HURRIED_DELAY = 0.5
LAST_TRIES = 3


class PendingReleases:
    """Results to send to the database, grouped by the statement that releases them."""

    def __init__(self, *, is_in_doubt: bool = False, retry_at: float = -math.inf) -> None:
        self.succeeded: list[Succeeded] = []
        self.recorded: list[Recorded] = []
        self.failed: list[Failed] = []
        self.interrupted: list[Interrupted] = []
        self.cancelled: list[Cancelled] = []
        self.expired: list[Expired] = []
        self.queues: list[HeldQueue] = []
        # Whether the connection broke during an earlier try: that try may have released the rows that are missing now.
        self.is_in_doubt = is_in_doubt
        # A rejected result is in a PendingReleases of its own, and is sent again at this time.
        self.retry_at = retry_at
        # How many statements had succeeded when the result was rejected; None if that is unknown or no longer relevant.
        self.successes_before: int | None = None

    def __len__(self) -> int:
        outcomes = len(self.succeeded) + len(self.recorded) + len(self.failed) + len(self.interrupted)
        return outcomes + len(self.cancelled) + len(self.expired) + len(self.queues)

    def put(self, item: Outcome | HeldQueue) -> None:
        if type(item) is Succeeded:
            self.succeeded.append(item)
        elif type(item) is Recorded:
            self.recorded.append(item)
        elif type(item) is Failed:
            self.failed.append(item)
        elif type(item) is Interrupted:
            self.interrupted.append(item)
        elif type(item) is Cancelled:
            self.cancelled.append(item)
        elif type(item) is Expired:
            self.expired.append(item)
        elif isinstance(item, HeldQueue):
            self.queues.append(item)

    def outcomes(self) -> Sequence[Outcome]:
        return [*self.succeeded, *self.recorded, *self.failed, *self.interrupted, *self.cancelled, *self.expired]


class RejectedReleases:
    """Results that the database rejected. Each is sent by itself, so that no other result waits for it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all: list[PendingReleases] = []
        self._is_hurried = False
        # How many statements have succeeded so far.
        self._successes = 0
        # By result: how often it was rejected since the worker began to stop, without rejections for lack of time.
        self._last_rejections: Counter[tuple[str, int]] = Counter()

    def add(
        self, item: Outcome | HeldQueue, source: PendingReleases, *, spent: float, is_definite: bool = False
    ) -> float:
        """Keep a result that was rejected; return the seconds until it is sent again.

        ``source`` is where the result came from, ``spent`` the seconds that the rejected statement took. A rejection
        is definite if more time would not have helped.
        """
        delay = self._delay(source, spent=spent, is_definite=is_definite)
        self._last_rejections[_key(item)] += self._is_hurried and is_definite
        pending = PendingReleases(is_in_doubt=source.is_in_doubt, retry_at=self._clock() + delay)
        pending.put(item)
        pending.successes_before = self._successes
        self._all.append(pending)
        return delay

    def note_success(self, pending: PendingReleases) -> None:
        """Note that a statement succeeded. If it released a rejected result, the others are sent again at once."""
        self._successes += 1
        if self._all and pending in self._all:
            for each in self._all:
                each.retry_at = min(each.retry_at, self._clock())
                each.successes_before = None

    def due(self) -> list[PendingReleases]:
        now = self._clock()
        return [pending for pending in self._all if pending.retry_at <= now]

    def until_next(self) -> float:
        """Return the seconds until the next result is due to be sent again. There must be a rejected result."""
        return max(min(pending.retry_at for pending in self._all) - self._clock(), 0.0)

    def remove_released(self) -> None:
        self._all = [pending for pending in self._all if pending]

    def hurry(self) -> None:
        """Send all rejected results again now, and with short delays from now on: a worker that stops waits for them.

        Called from another thread than the thread of the releaser.
        """
        self._is_hurried = True
        for pending in list(self._all):
            pending.retry_at = self._clock()

    @property
    def are_given_up(self) -> bool:
        """Whether the database has rejected each result LAST_TRIES times since the worker began to stop."""
        rejected = [pending for pending in list(self._all) if pending]
        return bool(rejected) and all(
            self._last_rejections[_key(item)] >= LAST_TRIES
            for pending in rejected
            # The queue of a job is released with the job.
            for item in pending.outcomes() or pending.queues
        )

    def job_ids(self) -> list[int]:
        return [outcome.claim.id for pending in list(self._all) for outcome in pending.outcomes()]

    def _delay(self, source: PendingReleases, *, spent: float, is_definite: bool) -> float:
        if self._is_hurried:
            return HURRIED_DELAY if is_definite else REJECTED_DELAY
        before = source.successes_before
        if before is None or self._successes == before:
            # No statement succeeded since the last rejection: the problem is the database, not this result.
            return REJECTED_DELAY
        return min(max(REJECTED_DELAY, spent * len(self._all) / SHARE_OF_REJECTED), LONGEST_DELAY)

    def __iter__(self) -> Iterator[PendingReleases]:
        return iter(self._all)

    def __len__(self) -> int:
        return sum(map(len, self._all))


def move_queues_to_their_jobs(pending: PendingReleases, everything: Iterable[PendingReleases]) -> int:
    """Move each queue to the ``PendingReleases`` of the last of its jobs; return how many queues wait for no job.

    A queue may be released only after all of its jobs. The queues that wait for no job come first in
    ``pending.queues``, and stay there until they are released.
    """
    needed_by = {_queue_of(outcome): each for each in everything for outcome in each.outcomes()}
    for queue in pending.queues:
        if needed_by.get(queue, pending) is not pending:
            needed_by[queue].queues.append(queue)
    staying = [queue for queue in pending.queues if needed_by.get(queue, pending) is pending]
    pending.queues[:] = sorted(staying, key=lambda queue: queue in needed_by)
    return sum(queue not in needed_by for queue in staying)


def _queue_of(outcome: Outcome) -> HeldQueue | None:
    claim = outcome.claim
    return None if claim.queue_id is None else HeldQueue(claim.queue_id, claim.token)


def _key(item: Outcome | HeldQueue) -> tuple[str, int]:
    return ("queue", item.id) if isinstance(item, HeldQueue) else ("job", item.claim.id)
