"""``GraphileTask``: Django's ``Task`` with the options of a job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import datetime, timedelta
from inspect import signature
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from django.utils.module_loading import import_string

from django_graphile_worker.backend.compat import InvalidTask, Task
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError, to_delay
from django_graphile_worker.job_options import Expires, JobKeyModeOption, Unique, valid_expires, valid_unique
from django_graphile_worker.jobs import JobDefaults
from django_graphile_worker.limits import task_limits
from django_graphile_worker.registry import (
    Exceptions,
    valid_exceptions,
    valid_keep_result,
    valid_schedulable,
    valid_timeout,
)
from django_graphile_worker.suggestions import did_you_mean

P = ParamSpec("P")
R = TypeVar("R")

JobKey = str | Callable[..., str | None]
Backoff = timedelta | float | Callable[..., Any]
KeepResult = timedelta | float | bool
Timeout = timedelta | float | bool

if TYPE_CHECKING:
    from django_graphile_worker.limits import Limit, TaskLimit

    _Task = Task
else:

    class _Task(Task):
        """Django's ``Task``, which is generic for type checkers only."""

        __slots__ = ()

        def __class_getitem__(cls, arguments: Any) -> Any:
            return cls


# The options that @task takes in addition to those of Django.
OPTIONS = (
    "max_attempts",
    "backoff",
    "give_up_on",
    "retry_for",
    "job_key",
    "job_key_mode",
    "unique",
    "flags",
    "atomic",
    "keep_result",
    "timeout",
    "expires",
    "limit",
    "fair",
    "schedulable",
)


def refuse_unknown_options(options: Iterable[str]) -> None:
    """Raise InvalidTypeError if ``@task`` got an option that neither Django nor this package has."""
    unknown = sorted(set(options) - set(OPTIONS))
    if not unknown:
        return
    if unknown[0] == "run_after":
        raise InvalidTypeError("@task: expected run_after with each call, got it here. Use .using(run_after=...).")
    known = ["priority", "queue_name", "backend", "takes_context", *OPTIONS]
    way_out = did_you_mean(unknown[0], known) or f"Known options: {', '.join(known)}."
    raise InvalidTypeError(f"@task: expected a known option, got {unknown[0]!r}. {way_out}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphileTask(_Task[P, R]):
    """A Django task whose backend is ``GraphileWorkerBackend``.

    The additional fields do not take part in comparisons, because a stored result does not have them.
    """

    # Attempts of a job, at most. Without it the option MAX_ATTEMPTS of the backend counts.
    max_attempts: int | None = field(default=None, compare=False)
    # The delay of the next attempt: a constant, or a function of the number of attempts and the exception.
    backoff: Backoff | None = field(default=None, compare=False)
    # Exceptions that are not retried; and if there are any, the only exceptions that are retried.
    give_up_on: Exceptions = field(default=(), compare=False)
    retry_for: Exceptions = field(default=(), compare=False)
    # At most one waiting job has this key. A function gets the arguments of the call.
    job_key: JobKey | None = field(default=None, compare=False)
    job_key_mode: JobKeyModeOption | None = field(default=None, compare=False)
    # No second job while an equal one waits or runs. A function as its key gets the arguments of the call.
    unique: Unique | str | bool | None = field(default=None, compare=False)
    flags: Iterable[str] | None = field(default=None, compare=False)
    # Whether the task and the end of its job are one transaction.
    atomic: bool = field(default=False, compare=False)
    # How long a result is kept. Without it the option RESULT_TTL of the backend counts.
    keep_result: KeepResult | None = field(default=None, compare=False)
    # How long a run may last. Without it the setting TIMEOUT counts; False means no limit.
    timeout: Timeout | None = field(default=None, compare=False)
    # By when a job must have been started: a time, or a duration from run_after on; False for never.
    expires: Expires | None = field(default=None, compare=False)
    # How many jobs run at once or start in a time. A template names arguments of the function; a function gets them.
    limit: Limit | Sequence[Limit] | None = field(default=None, compare=False)
    # Whose jobs take turns.
    fair: str | Callable[..., Any] | None = field(default=None, compare=False)
    # Whether users may schedule it in the admin, or the permission that lets them.
    schedulable: bool | str = field(default=False, compare=False)

    def __new__(cls, **options: Any) -> GraphileTask[P, R]:
        # Django's own @task passes on whatever it gets.
        refuse_unknown_options(options.keys() - cls.__dataclass_fields__.keys())
        return object.__new__(cls)

    def __post_init__(self) -> None:
        if self.flags is not None and isinstance(self.flags, list | set | frozenset):
            # An iterable of strings that no other code changes.
            object.__setattr__(self, "flags", tuple(self.flags))
        _Task.__post_init__(self)
        # A backend of another kind, to which using() moved the task, does not register it.
        register = getattr(self.get_backend(), "register_task", None)
        if register is not None:
            register(self)

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | timedelta | None = None,
        backend: str | None = None,
        max_attempts: int | None = None,
        job_key: str | None = None,
        job_key_mode: JobKeyModeOption | None = None,
        unique: Unique | str | bool | None = None,
        flags: Iterable[str] | None = None,
        expires: Expires | None = None,
    ) -> GraphileTask[P, R]:
        """Return a task with these changes. ``run_after`` is a time, or a timedelta from the moment of the call."""
        changes: dict[str, Any] = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
            "max_attempts": max_attempts,
            "job_key": job_key,
            "job_key_mode": job_key_mode,
            "unique": unique,
            "flags": flags,
            "expires": expires,
        }
        return replace(self, **{name: value for name, value in changes.items() if value is not None})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path and what is data; functions and limits, which may have functions, come from there."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("limit", "fair")}
        data = {name: value for name, value in values.items() if not callable(getattr(value, "key", value))}
        return _unpickled, (self.module_path, data)

    def job_key_for(self, args: tuple[Any, ...] | list[Any], kwargs: dict[str, Any]) -> str | None:
        """Return the key of a job with these arguments."""
        return self.job_key(*args, **kwargs) if callable(self.job_key) else self.job_key

    def unique_for(self, args: tuple[Any, ...] | list[Any], kwargs: dict[str, Any]) -> Unique | None:
        """Return under which key a job with these arguments is unique: without a key, that of the arguments."""
        unique = valid_unique(self.unique)
        if unique is None:
            return None
        if unique.key is None:
            return Unique(self._key_of_arguments(args, kwargs), unique.for_)
        return Unique(unique.key(*args, **kwargs), unique.for_) if callable(unique.key) else unique

    def _key_of_arguments(self, args: tuple[Any, ...] | list[Any], kwargs: dict[str, Any]) -> str:
        # Not the payload, which also has the priority and the time: f(1) and f(number=1) are the same call.
        context = (None,) if self.takes_context else ()
        bound = signature(self.func, follow_wrapped=False).bind(*context, *args, **kwargs)
        text = json.dumps(bound.arguments, sort_keys=True)
        return f"arguments:{hashlib.sha256(text.encode()).hexdigest()}"


def _unpickled(path: str, values: dict[str, Any]) -> Task[..., Any]:
    try:
        found = import_string(path)
    except ImportError:
        found = None
    if not isinstance(found, Task):
        raise ValueError(f"Expected {path!r} to point to a Task instance.")
    known = {each.name for each in fields(found)}
    return replace(found, **{name: value for name, value in values.items() if name in known})


def as_graphile_task(task: Task[..., Any]) -> GraphileTask[..., Any]:
    """Return the task with our options: one that was made while the setting named another backend has none."""
    if isinstance(task, GraphileTask):
        return task
    made: GraphileTask[..., Any] = object.__new__(GraphileTask)
    for each in fields(GraphileTask):
        default = None if each.default is MISSING else each.default
        object.__setattr__(made, each.name, getattr(task, each.name, default))
    return made


def validate_options(task: GraphileTask[Any, Any]) -> None:
    """Raise InvalidTask for an option that no job can have."""
    try:
        JobDefaults(
            max_attempts=task.max_attempts,
            job_key=task.job_key,
            job_key_mode=task.job_key_mode,
            unique=task.unique,
            flags=task.flags,
        )
        backoff_of(task)
        valid_exceptions(task.give_up_on, name="give_up_on")
        valid_exceptions(task.retry_for, name="retry_for")
        keep_result_of(task)
        timeout_of(task)
        valid_expires(task.expires)
        limits_of(task)
        valid_schedulable(task.schedulable, name="schedulable")
        if not isinstance(task.atomic, bool):
            raise InvalidTypeError(f"atomic: expected True or False, got {task.atomic!r}.")
    except (InvalidTypeError, InvalidJobError) as error:
        raise InvalidTask(f"@task of {task.module_path}: {error}") from error


def expires_of(task: GraphileTask[Any, Any]) -> float | None:
    """Return how many seconds after its due time a job may still be started; None if that is not limited so."""
    expires = valid_expires(task.expires)
    return expires.total_seconds() if isinstance(expires, timedelta) else None


def backoff_of(task: GraphileTask[Any, Any]) -> timedelta | Callable[..., Any] | None:
    backoff = task.backoff
    if backoff is None or callable(backoff):
        return backoff
    return to_delay(backoff, name="backoff", expected="a timedelta, a number of seconds or a callable")


def keep_result_of(task: GraphileTask[Any, Any]) -> float | bool | None:
    return valid_keep_result(task.keep_result, name="keep_result")


def timeout_of(task: GraphileTask[Any, Any]) -> float | bool | None:
    return valid_timeout(task.timeout, name="timeout")


def limits_of(task: GraphileTask[Any, Any]) -> tuple[TaskLimit, ...]:
    """Return the limits of a task; without a key, all labels of the function share the numbers."""
    return task_limits(task.limit, task.fair, task.module_path)
