"""Text for people, in logs, commands and errors: values made printable, durations, and suggestions for unknown names.

The admin translates its durations (``admin.formatting``); the time phrases of crontabs are in ``crontab.times``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from heapq import nsmallest

MAX_TEXT_LENGTH = 500
MAX_VALUE_LENGTH = 80
MINUTE, HOUR, DAY = 60, 3_600, 86_400
_UNITS = ((365 * DAY, "y"), (DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (1, "s"))

# Longer names are not compared, and no more names than this: comparing takes the square of their length.
MAX_COMPARED_LENGTH = 50
MAX_COMPARED_NAMES = 300


def shown(value: object) -> str:
    """Return the value as text for one line: without line breaks and control characters, and not too long."""
    text = text_of(value)
    if len(text) > MAX_TEXT_LENGTH:
        text = f"{text[:MAX_TEXT_LENGTH]}…"
    return escaped(text)


def text_of(value: object) -> str:
    """Return the value as text, whatever its methods raise."""
    try:
        return str(value)
    except BaseException:  # the methods of an exception may raise anything, and the line must be written
        return "<its text could not be read>"


def quoted(value: object) -> str:
    """Return the value as Python code for the message of an error, cut if it is long."""
    try:
        text = repr(value[: MAX_VALUE_LENGTH + 1] if isinstance(value, str) else value)
    except Exception:  # a number of very many digits, or an object whose method fails
        return f"a value of type {type(value).__name__}"
    if len(text) <= MAX_VALUE_LENGTH:
        return text
    length = f" ({len(value)} characters)" if isinstance(value, str) else ""
    return f"{text[:MAX_VALUE_LENGTH]}…{length}"


def escaped(text: str) -> str:
    """Return the text with every character that controls a terminal written as an escape sequence."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text
    )


def storable_text(text: str) -> str:
    """Return the text with what PostgreSQL cannot store escaped, for messages that must not be refused."""
    if text.isascii() and "\x00" not in text:
        return text
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


def readable_duration(seconds: float) -> str:
    """Return seconds as text: ``0.4 ms``, ``12 ms``, ``2.4 s``, ``18 min``, ``2 h 5 min``, ``3 d 4 h``."""
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        milliseconds = seconds * 1_000
        if milliseconds < 0.05:
            return "<0.1 ms"
        return f"{milliseconds:.1f} ms" if milliseconds < 0.95 else f"{milliseconds:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    if whole < 2 * MINUTE:
        return f"{whole} s"
    if whole < HOUR - MINUTE / 2:
        return f"{round(whole / MINUTE)} min"
    if whole < DAY:
        return _in_two_units(round(whole / MINUTE), HOUR // MINUTE, "h", "min")
    return _in_two_units(round(whole / HOUR), DAY // HOUR, "d", "h")


def _in_two_units(number: int, size: int, large: str, small: str) -> str:
    """Return a number of small units as ``2 h 5 min``, or as ``2 h`` when the rest is zero."""
    whole, rest = divmod(number, size)
    return f"{whole} {large} {rest} {small}" if rest else f"{whole} {large}"


def in_largest_unit(seconds: float) -> str:
    """Return seconds in the largest unit that fits, without the rest: ``3 h``, not ``3 h 12 m 5 s``."""
    seconds = round(abs(seconds))
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return "0 s"


# Suggestions: the closest known name, or the equivalent of another job queue's name.

# A queue of another job queue is a pool of workers; a named queue here is a lock.
_QUEUES = (
    "A queue_name makes jobs run one at a time, in order. To choose the workers that run a task, start them with "
    "runworker --tasks NAME, or give its jobs flags=[...] and use runworker --forbid-flag."
)
_ON_COMMIT = "Did you mean add_job({...})? A job is part of the transaction, and runs after its commit."
_ONE_PAYLOAD = 'A job has one payload: add_job(task, {"order": 1}).'

# Options of @task in Celery, Dramatiq, Huey, RQ and Procrastinate, each with its equivalent here.
TASK_OPTIONS = {
    "name": "Did you mean 'identifier'?",
    "queue": _QUEUES,
    "max_retries": "Did you mean 'max_attempts'?",
    "retries": "Did you mean 'max_attempts'?",
    "schedule": "Did you mean 'cron'?",
    "default_retry_delay": "Did you mean 'backoff'?",
    "retry_backoff": "Did you mean 'backoff'?",
    "retry_delay": "Did you mean 'backoff'?",
    "autoretry_for": "Every exception is retried. Did you mean 'retry_for', the only exceptions that are?",
    "dont_autoretry_for": "Did you mean 'give_up_on'?",
    "throws": "Did you mean 'give_up_on'?",
    "retry_when": "Did you mean 'retry_for' or 'backoff'?",
    "bind": "A task that takes (payload, helpers) gets its job as helpers.job.",
    "rate_limit": "Did you mean limit=Limit(rate='100/m')?",
    "concurrency_limit": "Did you mean limit=Limit(concurrency=3)?",
    "time_limit": "Did you mean 'timeout'?",
    "soft_time_limit": "Did you mean 'timeout'?",
    "job_timeout": "Did you mean 'timeout'?",
    "ignore_result": "Results are kept only if asked for: omit it, or write keep_result=False.",
}

# Options of add_job in the same job queues.
JOB_OPTIONS = {
    "countdown": "Did you mean run_at=timedelta(seconds=...)?",
    "delay": "Did you mean run_at=timedelta(seconds=...)?",
    "schedule_in": "Did you mean run_at=timedelta(seconds=...)?",
    "eta": "Did you mean 'run_at'?",
    "schedule_at": "Did you mean 'run_at'?",
    "run_after": "Did you mean 'run_at'?",
    "queue": _QUEUES,
    "lock": "Did you mean 'queue_name'?",
    "key": "Did you mean 'job_key'?",
    "task_id": "Did you mean 'job_key'?",
    "queueing_lock": "Did you mean 'job_key'?",
    "max_retries": "Did you mean 'max_attempts'?",
    "retries": "Did you mean 'max_attempts'?",
    "retry": "Did you mean 'max_attempts'?",
    "database": "Did you mean 'using'?",
    "routing_key": _QUEUES,
    "args": _ONE_PAYLOAD,
    "kwargs": _ONE_PAYLOAD,
    "link": "Add the next job at the end of the task.",
}

# Attributes of a task in the same job queues.
TASK_ATTRIBUTES = {
    "delay": "Did you mean add_job({...})?",
    "delay_on_commit": _ON_COMMIT,
    "apply_async_on_commit": _ON_COMMIT,
    "enqueue": "Did you mean add_job({...})?",
    "defer": "Did you mean add_job({...})?",
    "send": "Did you mean add_job({...})?",
    "apply_async": "Did you mean add_job({...}, run_at=...)?",
    "send_with_options": "Did you mean add_job({...}, run_at=...)?",
    "configure": "Did you mean add_job({...}, run_at=...)?",
    "using": "Did you mean add_job({...}, run_at=...)?",
    "schedule": "Did you mean add_job({...}, run_at=...)?",
    "aenqueue": "Did you mean aadd_job({...})?",
    "adelay": "Did you mean aadd_job({...})?",
    "defer_async": "Did you mean aadd_job({...})?",
    "apply": "Call the task itself to run it here and now.",
    "s": "Did you mean JobSpec(task, {...})? For a chain, add the next job at the end of the task.",
    "si": "Did you mean JobSpec(task, {...})? For a chain, add the next job at the end of the task.",
    "signature": "Did you mean JobSpec(task, {...})? For a chain, add the next job at the end of the task.",
    "retry": "Did you mean 'raise RetryLater(seconds)'?",
    "name": "Did you mean 'identifier'?",
    "run": "Call the task itself to run it here and now.",
    "AsyncResult": "Did you mean result(job)?",
    "request": "A task that takes (payload, helpers) gets its job as helpers.job.",
}


def did_you_mean(name: str, known: Iterable[str], elsewhere: Mapping[str, str] | None = None) -> str:
    """Return a sentence that suggests another name for an unknown name; empty when no known name is similar.

    ``elsewhere`` has the sentences for names that other job queues use.
    """
    if elsewhere and name in elsewhere:
        return elsewhere[name]
    close = closest(name, known)
    return f"Did you mean {close!r}?" if close else ""


def closest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the most similar known name, or None."""
    return next(iter(close_matches(name, known, number=1, cutoff=cutoff)), None)


def close_matches(name: str, known: Iterable[str], *, number: int, cutoff: float) -> list[str]:
    """Return the most similar known names, within a fraction of a second: anybody who adds a job can make names."""
    if len(name) > MAX_COMPARED_LENGTH:
        return []
    compared = nsmallest(MAX_COMPARED_NAMES, known, key=lambda each: abs(len(each) - len(name)))
    return difflib.get_close_matches(name, compared, n=number, cutoff=cutoff)
