"""What a worker records of attempts that have ended: the results that tasks keep, runs of schedules, the history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from operator import attrgetter
from time import monotonic

from django_graphile_worker import payloads, redaction
from django_graphile_worker.conf import Settings
from django_graphile_worker.job_flags import keep_in
from django_graphile_worker.sql.releases import CompletedJobs, Failure, KeptResults, StoppedRun
from django_graphile_worker.worker.outcomes import Cancelled, Failed, Interrupted, Recorded

# A longer payload is left out of the history, in characters.
LONGEST_HISTORY_PAYLOAD = 65_536
# How many characters of results one statement takes, unless a single result is longer.
MAX_CHARACTERS = 8 * 1_048_576

_token = attrgetter("claim.token")


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
        # Only one outcome of each task is asked for its task.
        one_of_each = {claim.task_id: outcome for claim, outcome in zip(claims, ordered, strict=True)}
        return CompletedJobs(
            claims=claims,
            durations=[int(outcome.duration * 1e6) for outcome in ordered],
            identifiers={task_id: outcome.task.identifier for task_id, outcome in one_of_each.items()},
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

    def failures(self, outcomes: Sequence[Failed]) -> list[Failure]:
        """Return what is stored of attempts that failed; all of them are recorded if one is."""
        keeps = [self._keep(outcome) for outcome in outcomes]
        is_recorded = self._has_history or any(keep is not None for keep in keeps)
        return [self._failure(outcome, keep, is_recorded) for outcome, keep in zip(outcomes, keeps, strict=True)]

    def _failure(self, outcome: Failed, keep: float | None, is_recorded: bool) -> Failure:
        return Failure(
            claim=outcome.claim,
            error=outcome.error,
            delay=outcome.delay,
            permanent=outcome.permanent,
            payload_text=outcome.payload_text,
            duration=_microseconds(outcome.duration),
            history_payload=self._history_payload(outcome.claim.payload_text),
            ago=_microseconds(self._clock() - outcome.ended) if is_recorded else None,
            exception_class=outcome.exception_class,
            keep=keep,
            keeps_payload=outcome.task is not None and outcome.task.keeps_payload,
        )

    def _keep(self, outcome: Failed) -> float | None:
        task, default = outcome.task, self._settings.keep_results
        return _longer(default if task is None else task.result_seconds(default), outcome.claim.flags_text)

    def stopped(self, outcome: Interrupted | Cancelled) -> StoppedRun:
        """Return what is recorded of a job that is returned, or that was cancelled while this worker held it."""
        return StoppedRun(
            claim=outcome.claim,
            duration=_microseconds(outcome.duration) if outcome.has_begun else None,
            history_payload=self._history_payload(outcome.claim.payload_text),
            payload_text=outcome.payload_text if isinstance(outcome, Interrupted) else None,
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
    if sum(lengths) <= MAX_CHARACTERS:
        return len(outcomes)
    return max(sum(total <= MAX_CHARACTERS for total in accumulate(lengths)), 1)


def _longer(keep: float | None, flags_text: str | None) -> float | None:
    """Return how long a result is kept: as long as its task says, and as the schedule says of which it is a run."""
    own = keep_in(flags_text)
    return keep if own is None else max(own, keep or 0.0)


def _microseconds(seconds: float) -> int:
    return max(int(seconds * 1e6), 0)
