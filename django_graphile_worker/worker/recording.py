"""What a worker records of the attempts that it ends: the results that tasks keep, runs of schedules, and the history.

Loaded by the first attempt of which something is recorded. A worker that records nothing never loads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from operator import attrgetter, itemgetter
from time import monotonic

from django_graphile_worker import payloads, redaction
from django_graphile_worker.conf import Settings
from django_graphile_worker.run_flags import keep_in
from django_graphile_worker.sql.cancelled_claims import StoppedRun
from django_graphile_worker.sql.claims import Claim
from django_graphile_worker.sql.records.recorded_releases import Attempt, CompletedJobs, KeptResults, ReturnedJob
from django_graphile_worker.worker.outcomes import Cancelled, Failed, Interrupted, Recorded

# A longer payload is left out of the history, in characters.
LONGEST_HISTORY_PAYLOAD = 65_536
# How many characters of results one statement takes, unless a single result is longer.
MOST_CHARACTERS = 8 * 1_048_576

_token = attrgetter("claim.token")
_task_id = itemgetter(Claim._fields.index("task_id"))


class Recording:
    """Builds the records of attempts, as the statements take them."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._has_history = settings.history is not None

    def completed(self, outcomes: Sequence[Recorded]) -> CompletedJobs:
        """Return what is recorded of jobs that succeeded."""
        # In groups of one claim statement, as the jobs are found in the database.
        ordered = sorted(outcomes, key=_token)
        values = [outcome.value_text for outcome in ordered]
        claims = [outcome.claim for outcome in ordered]
        return CompletedJobs(
            claims=claims,
            durations=[int(outcome.duration * 1e6) for outcome in ordered],
            identifiers=_identifiers(claims, ordered),
            has_history=self._has_history,
            results=self._results(ordered, values) if values.count(None) < len(values) else None,
            history_payloads=self._history_payloads(ordered),
        )

    def _results(self, outcomes: Sequence[Recorded], values: Sequence[str | None]) -> KeptResults:
        now, default = self._clock(), self._settings.keep_results
        seconds = {task: task.result_seconds(default) for task in {outcome.task for outcome in outcomes}}
        return KeptResults(
            agos=[max(int((now - each.started - each.duration) * 1e6), 0) for each in outcomes],
            keeps=[
                None
                if each.value_text is None
                else seconds[each.task]
                if each.claim.flags_text is None
                else _longer(seconds[each.task], each.claim.flags_text)
                for each in outcomes
            ],
            values=values,
            are_payloads_kept=[each.task.keeps_payload for each in outcomes],
        )

    def failed(self, outcome: Failed) -> Attempt:
        """Return what is recorded of an attempt that failed."""
        task, default = outcome.task, self._settings.keep_results
        return Attempt(
            ago=_microseconds(self._clock() - outcome.ended),
            duration=_microseconds(outcome.duration),
            exception_class=outcome.exception_class,
            keep=_longer(default if task is None else task.result_seconds(default), outcome.claim.flags_text),
            keeps_payload=task is not None and task.keeps_payload,
            has_history=self._has_history,
            history_payload=self._history_payload(outcome.claim.payload_text),
        )

    def returned(self, outcome: Interrupted) -> ReturnedJob:
        """Return what is recorded of a job that is returned."""
        return ReturnedJob(
            claim=outcome.claim,
            payload_text=outcome.payload_text,
            has_begun=outcome.has_begun,
            duration=_microseconds(outcome.duration),
            history_payload=self._history_payload(outcome.claim.payload_text),
        )

    def stopped(self, outcome: Cancelled) -> StoppedRun:
        """Return what is recorded of a job that was cancelled while this worker held it."""
        return StoppedRun(
            claim=outcome.claim,
            duration=_microseconds(outcome.duration) if outcome.has_begun else None,
            history_payload=self._history_payload(outcome.claim.payload_text),
        )

    def _history_payloads(self, outcomes: Iterable[Recorded]) -> list[str | None] | None:
        if not self._settings.history_payloads:
            return None
        return [self._history_payload(outcome.claim.payload_text) for outcome in outcomes]

    def _history_payload(self, text: str) -> str | None:
        """Return the payload without secrets, if the history has payloads."""
        if not self._has_history or not self._settings.history_payloads or len(text) > LONGEST_HISTORY_PAYLOAD:
            return None
        value = redaction.redact(payloads.decode_leniently(text))
        try:
            return payloads.encode(value, max_size=4 * LONGEST_HISTORY_PAYLOAD)
        except ValueError:
            return None


def in_one_statement(outcomes: Sequence[Recorded]) -> int:
    """Return how many of the outcomes, from the first on, one statement takes, so that it does not grow too large."""
    values = [outcome.value_text for outcome in outcomes]
    if values.count(None) == len(values):
        return len(outcomes)
    lengths = [len(value or "") for value in values]
    if sum(lengths) <= MOST_CHARACTERS:
        return len(outcomes)
    return max(sum(total <= MOST_CHARACTERS for total in accumulate(lengths)), 1)


def _identifiers(claims: Sequence[Claim], outcomes: Sequence[Recorded]) -> dict[int, str]:
    """Return the identifiers of the tasks by their ids. Only one outcome of each task is asked for its task."""
    one_of_each = dict(zip(map(_task_id, claims), outcomes, strict=True))
    return {task_id: outcome.task.identifier for task_id, outcome in one_of_each.items()}


def _longer(keep: float | None, flags_text: str | None) -> float | None:
    """Return how long a result is kept: as long as its task says, and as the schedule says of which it is a run."""
    own = keep_in(flags_text)
    return keep if own is None else max(own, keep or 0.0)


def _microseconds(seconds: float) -> int:
    return max(int(seconds * 1e6), 0)
