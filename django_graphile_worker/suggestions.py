"""Suggestions for names that do not exist: the closest known name, or the equivalent of another job queue's name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from heapq import nsmallest

# Longer names are not compared, and no more names than this: comparing takes the square of their length.
MAX_COMPARED_LENGTH = 50
MAX_COMPARED_NAMES = 300

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
