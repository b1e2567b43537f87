"""The outcome of a failed run: the text of the error, and the time of the next attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils.module_loading import import_string

from django_graphile_worker.conf import SETTING, Settings
from django_graphile_worker.exceptions import (
    BatchFailure,
    ConfigurationError,
    LimitedUntil,
    PermanentFailure,
    RetryLater,
    SettingMistake,
)
from django_graphile_worker.jobs import final_remark
from django_graphile_worker.limits import keys_of
from django_graphile_worker.logs.errors import (
    LIMITS_READ,
    class_path,
    cut,
    describe,
    redacted_and_cut,
    summary,
    trace,
)
from django_graphile_worker.registry import Task
from django_graphile_worker.setting_types import is_exception_class
from django_graphile_worker.sql.limits import KeyClosing
from django_graphile_worker.text import storable_text
from django_graphile_worker.worker.execution import results
from django_graphile_worker.worker.execution.job_run import JobRun
from django_graphile_worker.worker.outcomes import Failed, QueuePause

# A delay beyond the last date of PostgreSQL would also fail the release of the other jobs in the statement.
MAX_DELAY = timedelta(days=36_525).total_seconds()
_MAX_TRACEBACKS = 10


@dataclass(frozen=True, slots=True)
class RetryRules:
    """What the project says about the retries of all tasks; a task may say something else."""

    # Seconds, or a function of the number of attempts and the exception; None for the usual back-off.
    backoff: float | Callable[..., Any] | None = None
    # Exceptions that are not retried.
    give_up_on: tuple[type[BaseException], ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> RetryRules:
        """Return the rules of the settings BACKOFF and GIVE_UP_ON; raise ConfigurationError for a wrong path."""
        backoff, paths = settings.backoff, settings.give_up_on
        if isinstance(backoff, str):
            backoff = _loaded(backoff, "BACKOFF", "a function", callable)
        classes = [_loaded(path, "GIVE_UP_ON", "exception classes", is_exception_class) for path in paths]
        return cls(backoff=backoff, give_up_on=tuple(classes))


def _loaded(value: Any, key: str, expected: str, is_valid: Callable[[Any], bool]) -> Any:
    try:
        found = import_string(value) if isinstance(value, str) else value
    except ImportError as error:
        found = f"an ImportError ({error})"
    if is_valid(found):
        return found
    message = f'{SETTING}["{key}"]: expected {expected}, got {value!r}, which is {found}.'
    raise ConfigurationError(mistakes=[SettingMistake(key=key, message=message)])


NO_RULES = RetryRules()


def failed(
    run: JobRun,
    error: BaseException,
    *,
    limit: int,
    is_redacted: bool = True,
    remarks: Sequence[str] = (),
    rules: RetryRules = NO_RULES,
) -> Failed:
    """Return the outcome of a run that ended with an exception."""
    given_up_by = option_that_gives_up(run, error, rules)
    is_permanent = bool(given_up_by) or _is_permanent(error)
    delay, remark = (None, "") if given_up_by else _delay(run, error, rules)
    final = final_remark(run.claim.attempts, run.claim.max_attempts) if is_permanent else ""
    if given_up_by:
        remark = f"Not retried because of {given_up_by}."
    queue_pause = _queue_pause(error)
    if queue_pause is not None and run.claim.queue_id is None:
        remark = "\n".join(filter(None, [remark, "pause_queue=True had no effect, because the job is in no queue."]))
        queue_pause = None
    closings, remark_on_keys = _closings(run, error)
    text = _text(
        error,
        LIMITS_READ * limit if is_redacted else limit,
        "\n".join(filter(None, [final, remark, remark_on_keys, *remarks])),
    )
    return Failed(
        run.claim,
        run.duration,
        error=redacted_and_cut(text, limit) if is_redacted else text,
        delay=delay,
        permanent=is_permanent,
        payload_text=remaining_payload(run, error),
        task=run.task,
        exception_class=class_path(error),
        queue_pause=queue_pause,
        closings=closings,
    )


def option_that_gives_up(run: JobRun, error: BaseException, rules: RetryRules) -> str:
    """Return the option because of which the job is not tried again: if it concerns every cause of the failure.

    Empty if there is none, or if the task itself decided with PermanentFailure.
    """
    options = [_given_up_by(run.task, cause, rules) for cause in _causes(error)]
    return next(filter(None, options), "") if None not in options else ""


def _given_up_by(task: Task[Any, Any] | None, cause: BaseException, rules: RetryRules) -> str | None:
    """Return the option because of which a cause is not retried; empty if the cause itself says so, None if it is."""
    if _is_final(cause):
        return ""
    if isinstance(cause, RetryLater):
        return None
    if task is not None and isinstance(cause, task.give_up_on):
        return "give_up_on"
    if task is not None and task.retry_for:
        return None if isinstance(cause, task.retry_for) else "retry_for"
    return "the setting GIVE_UP_ON" if isinstance(cause, rules.give_up_on) else None


def remaining_payload(run: JobRun, error: BaseException | None) -> str | None:
    """Return an array payload without the items that are done; None if the whole payload remains."""
    # The rollback of an atomic task also undid the items that succeeded.
    if not isinstance(error, BatchFailure) or run.is_atomic:
        return None
    try:
        # The text of the row, even if middleware replaced the payload: the replacement may be a decrypted secret.
        return results.remaining(run.claim.payload_text, error)
    except Exception:
        # The text cannot be split: it is better to run all items again than to lose some.
        return None


def asks_to_run_at_once(error: BaseException | None) -> bool:
    """Return True if every cause of the failure is a ``RetryLater`` without delay."""
    return error is not None and _asked_delay(error) == 0


def asks_to_run_again(error: BaseException) -> bool:
    """Return True if every cause of the failure is a ``RetryLater``."""
    return _asked_delay(error) is not None


def _causes(error: BaseException) -> list[BaseException]:
    """Return the single exceptions: the members of groups, the failed items of a batch, or the error itself."""
    if isinstance(error, BatchFailure):
        members = tuple(error.failures.values())
    elif isinstance(error, BaseExceptionGroup):
        members = error.exceptions
    else:
        return [error]
    return [cause for member in members for cause in _causes(member)]


def _is_permanent(error: BaseException) -> bool:
    return all(map(_is_final, _causes(error)))


def _is_final(cause: BaseException) -> bool:
    return isinstance(cause, PermanentFailure) or getattr(cause, "is_misfit", False) is True


def _asked_delay(error: BaseException) -> float | None:
    """Return the longest delay if every cause is a ``RetryLater``, else None."""
    causes = _causes(error)
    delays = [cause.delay.total_seconds() for cause in causes if isinstance(cause, RetryLater)]
    return max(delays) if len(delays) == len(causes) else None


def _queue_pause(error: BaseException) -> QueuePause | None:
    """Return the longest pause of the queue that a cause asks for; None if no cause does."""
    asking = [cause for cause in _causes(error) if isinstance(cause, RetryLater) and cause.pause_queue]
    if not asking:
        return None
    longest = max(asking, key=lambda cause: cause.delay)
    seconds = _bounded(longest.delay.total_seconds())
    return QueuePause(seconds, storable_text(longest.reason)) if seconds > 0 else None


def _closings(run: JobRun, error: BaseException) -> tuple[Sequence[KeyClosing], str]:
    """Return the keys that the task closes with LimitedUntil, and a remark if it closes none."""
    asking = [cause for cause in _causes(error) if isinstance(cause, LimitedUntil)]
    if not asking:
        return (), ""
    keys = () if run.task is None else keys_of(run.task, run.claim.payload_text)
    closings = [
        KeyClosing(key.limit_name, key.text, _bounded(cause.delay.total_seconds()))
        for cause in asking
        for key in keys
        if cause.limit in (None, key.limit_name)
    ]
    if closings:
        return closings, ""
    known = ", ".join(repr(key.limit_name) for key in keys) or "none"
    return (), f"LimitedUntil had no effect on other jobs. The limits of the task are {known}."


def _delay(run: JobRun, error: BaseException, rules: RetryRules) -> tuple[float | None, str]:
    """Return the seconds until the next attempt (None: the usual back-off), and a remark for the error's text."""
    asked = _asked_delay(error)
    if asked is not None:
        return _bounded(asked), ""
    if _is_permanent(error):
        return None, ""
    try:
        for backoff in (run.task.backoff if run.task is not None else None, rules.backoff):
            answer = backoff(run.claim.attempts, error) if callable(backoff) else backoff
            if answer is not None:
                return _bounded(_seconds(answer)), ""
        return None, ""
    except BaseException as own_error:  # the back-off, too, is code of the site
        return None, f"The usual back-off is used, as the task's own back-off failed: {summary(own_error)}"


def _seconds(answer: Any) -> float:
    seconds = answer.total_seconds() if isinstance(answer, timedelta) else answer
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not seconds >= 0:
        raise ValueError(
            f"expected backoff to give a timedelta, a number of seconds of zero or more, or None, got {answer!r}"
        )
    return float(seconds)


def _bounded(seconds: float) -> float:
    return min(seconds, MAX_DELAY)


# The text of the error.


def _text(error: BaseException, limit: int, remark: str) -> str:
    if not isinstance(error, BatchFailure):
        return describe(error, limit=limit, remark=remark)
    lines = [_batch_summary(error)]
    lines += [f"[{index}] {summary(each)}" for index, each in error.failures.items()]
    # An exception that was returned, not raised, has no traceback: its line is complete.
    traces = ((index, trace(each)) for index, each in list(error.failures.items())[:_MAX_TRACEBACKS])
    details = [f"[{index}] {text}" for index, text in traces if text]
    return cut("\n\n".join(filter(None, ["\n".join(lines), remark, *details])), limit)


def _batch_summary(error: BatchFailure) -> str:
    """Return the first line of the text. Errors are grouped by it, so it begins with the class of all failures."""
    failures = list(error.failures.values())
    if len({type(each) for each in failures}) == 1:
        first_line = summary(failures[0]).partition("\n")[0]
        return f"{first_line} ({error.share})"
    return f"BatchFailure: {error}"
