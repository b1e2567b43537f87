"""Cancels jobs: removes jobs that wait, and has workers stop jobs that run."""

from __future__ import annotations

from collections.abc import Sequence

from django_graphile_worker import signals
from django_graphile_worker.api.async_variants import async_variant
from django_graphile_worker.api.cancelled import send_cancelled
from django_graphile_worker.api.change import Jobs, valid_ids
from django_graphile_worker.api.connection import QueueConnection, open_place
from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.frozen import Frozen
from django_graphile_worker.job_options import valid_job_key
from django_graphile_worker.routing import Place, place_of
from django_graphile_worker.sql import cancellations
from django_graphile_worker.sql.cancellations import Cancellation, Fate
from django_graphile_worker.text import storable_text

# Characters; the rest of a longer text is cut off.
LONGEST_REASON = 10_000
LONGEST_NAME = 300
# A call that found none of its jobs may have been sent by a role that sees no rows.
FOUND = (cancellations.REMOVED, cancellations.STOPPING, cancellations.UNSTOPPABLE)


class CancelResult(Frozen):
    """What a call made of each job: every id that was given is in one of the tuples."""

    # These jobs waited. They are deleted, and never run.
    removed: tuple[int, ...] = ()
    # A worker runs these jobs. After the commit it stops them; a job that ends before that has ended.
    stopping: tuple[int, ...] = ()
    # A worker of Node.js runs these jobs, which nothing can stop. They are not tried again if they fail.
    unstoppable: tuple[int, ...] = ()
    # These jobs had ended before: they failed permanently, or a result says how they ended.
    ended: tuple[int, ...] = ()
    # There are no such jobs: they ended and left no result, or never existed.
    unknown: tuple[int, ...] = ()

    @property
    def cancelled(self) -> tuple[int, ...]:
        """The jobs that were removed or are being stopped."""
        return self.removed + self.stopping


def cancel_jobs(
    job_ids: Jobs,
    *,
    reason: str = "",
    by: str = "",
    using: str | None = None,
    installation: str | None = None,
) -> CancelResult:
    """Remove jobs that wait, and stop jobs that run; return what became of each of them.

    The call is part of the caller's transaction: workers are told at its commit. A cancelled job is not tried
    again. ``by`` and ``reason`` say who cancelled it and why; its result, the history and the signal
    ``job_cancelled`` have both.
    """
    ids = valid_ids(job_ids)
    texts = _valid_texts(reason, by)
    if not ids:
        return CancelResult()
    place = place_of(using, installation)
    with open_place(place) as queue:
        cancellation = _cancellation(queue, *texts)
        fates = cancellations.cancel_jobs(queue.cursor, ids, cancellation, schema=queue.schema)
        return _result(place, queue, cancellation, fates)


def cancel_by_key(
    job_key: str, *, reason: str = "", by: str = "", using: str | None = None, installation: str | None = None
) -> CancelResult:
    """Cancel the job with this key, as ``cancel_jobs()`` does; the result is empty if there is none.

    A running job that was replaced or removed has lost its key: cancel it by its id.
    """
    key = valid_job_key(job_key)
    if key is None:
        raise InvalidTypeError("job_key: expected a string, got None.")
    texts = _valid_texts(reason, by)
    place = place_of(using, installation)
    with open_place(place) as queue:
        cancellation = _cancellation(queue, *texts)
        fates = cancellations.cancel_by_key(queue.cursor, key, cancellation, schema=queue.schema)
        return _result(place, queue, cancellation, fates)


def _valid_texts(reason: object, by: object) -> tuple[str, str]:
    for name, value in (("reason", reason), ("by", by)):
        if not isinstance(value, str):
            raise InvalidTypeError(f"{name}: expected a string, got {value!r}.")
    return storable_text(str(reason))[:LONGEST_REASON], storable_text(str(by))[:LONGEST_NAME]


def _cancellation(queue: QueueConnection, reason: str, by: str) -> Cancellation:
    is_read = signals.job_cancelled.is_heard()
    return Cancellation(reason=reason, by=by, notify=queue.notify, keeping=queue.keeping, is_read=is_read)


def _result(place: Place, queue: QueueConnection, cancellation: Cancellation, fates: Sequence[Fate]) -> CancelResult:
    if not any(fate.fate in FOUND for fate in fates):
        queue.refuse_hidden_tables()
    send_cancelled(place, cancellations.removed_jobs(fates, cancellation))
    by_fate = {name: tuple(sorted(fate.job_id for fate in fates if fate.fate == name)) for name in cancellations.FATES}
    return CancelResult(**by_fate)


acancel_jobs = async_variant(cancel_jobs)
acancel_by_key = async_variant(cancel_by_key)
