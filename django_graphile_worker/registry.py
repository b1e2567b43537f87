"""``@task``, and the registry of tasks by identifier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError, to_delay
from django_graphile_worker.expiry import valid_expires
from django_graphile_worker.job_options import JobKeyModeOption, Unique, valid_identifier
from django_graphile_worker.jobs import JobDefaults
from django_graphile_worker.setting_types import MAX_DURATION, MIN_TIMEOUT, is_exception_class
from django_graphile_worker.signatures import innermost, is_generator_function, source_of
from django_graphile_worker.task_permissions import valid_schedulable
from django_graphile_worker.task_type import Task

if TYPE_CHECKING:
    from typing import Concatenate

    from django_graphile_worker.limits import Key, Limit, TaskLimit
    from django_graphile_worker.task_type import Payload, TaskDecorator

__all__ = ["Backoff", "Registry", "Task", "task", "tasks"]

P = ParamSpec("P")
R = TypeVar("R")

# A number means seconds.
Backoff = timedelta | float | Callable[..., Any]
Exceptions = type[BaseException] | Iterable[type[BaseException]]


class Registry:
    """The tasks of this process, by identifier."""

    def __init__(self) -> None:
        self._tasks: dict[str, list[Task[Any, Any]]] = {}
        # Whether a task has a time limit of its own. Django tasks note it here, as they are registered late.
        self.has_time_limits = False
        # Whether any task has limits: adding a job looks for the keys of its payload then.
        self.has_limits = False

    def register(self, task: Task[Any, Any]) -> None:
        """Add a task. Another function with the same identifier is kept as a duplicate, for a system check."""
        self.has_time_limits = self.has_time_limits or bool(task.timeout)
        self.has_limits = self.has_limits or bool(task.limits)
        group = self._tasks.setdefault(task.identifier, [])
        for index, known in enumerate(group):
            if _is_same_function(known, task):
                group[index] = task
                return
        group.append(task)

    def get(self, identifier: str) -> Task[Any, Any] | None:
        group = self._tasks.get(identifier)
        return group[0] if group else None

    def identifiers(self) -> tuple[str, ...]:
        return tuple(sorted(self._tasks))

    def usable_identifiers(self) -> tuple[str, ...]:
        """Return the identifiers that the database can store; a system check reports the others."""
        return tuple(name for name in self.identifiers() if _is_valid_identifier(name))

    def every(self) -> dict[str, timedelta]:
        """Return the intervals of the tasks that have one, by identifier."""
        return {task.identifier: task.every for task in self if task.every and _is_valid_identifier(task.identifier)}

    @property
    def duplicates(self) -> tuple[tuple[Task[Any, Any], ...], ...]:
        """Groups of different functions that share an identifier."""
        return tuple(tuple(group) for _, group in sorted(self._tasks.items()) if len(group) > 1)

    @contextmanager
    def isolated(self) -> Iterator[Registry]:
        """Undo all registrations of the block at its end."""
        kept = {identifier: list(group) for identifier, group in self._tasks.items()}
        had_time_limits, had_limits = self.has_time_limits, self.has_limits
        try:
            yield self
        finally:
            self._tasks, self.has_time_limits, self.has_limits = kept, had_time_limits, had_limits

    def __iter__(self) -> Iterator[Task[Any, Any]]:
        return iter([group[0] for _, group in sorted(self._tasks.items())])

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._tasks

    def __len__(self) -> int:
        return len(self._tasks)


tasks = Registry()


@overload
def task(function: Callable[Concatenate[Payload, P], R], /) -> Task[Concatenate[Payload, P], R, Payload]: ...


@overload
def task(function: Callable[P, R], /) -> Task[P, R, None]: ...


@overload
def task(
    identifier: str | None = None,
    *,
    queue_name: str | None = None,
    priority: int | None = None,
    max_attempts: int | None = None,
    flags: Iterable[str] | None = None,
    job_key: str | Callable[[Any], str | None] | None = None,
    job_key_mode: JobKeyModeOption | None = None,
    unique: Unique | str | bool | None = None,
    atomic: bool = False,
    backoff: Backoff | None = None,
    give_up_on: Exceptions = (),
    retry_for: Exceptions = (),
    cron: str | Sequence[str] | None = None,
    every: timedelta | float | None = None,
    keep_result: timedelta | float | bool | None = None,
    timeout: timedelta | float | bool | None = None,
    expires: timedelta | float | None = None,
    limit: Limit | Sequence[Limit] | None = None,
    fair: Key | None = None,
    schedulable: bool | str = False,
) -> TaskDecorator: ...


def task(
    function_or_identifier: Any = None,
    /,
    *,
    identifier: str | None = None,
    atomic: bool = False,
    backoff: Backoff | None = None,
    give_up_on: Exceptions = (),
    retry_for: Exceptions = (),
    cron: str | Sequence[str] | None = None,
    every: timedelta | float | None = None,
    keep_result: timedelta | float | bool | None = None,
    timeout: timedelta | float | bool | None = None,
    expires: timedelta | float | None = None,
    limit: Limit | Sequence[Limit] | None = None,
    fair: Key | None = None,
    schedulable: bool | str = False,
    **defaults: Any,
) -> Any:
    """Register a function as a task: ``@task``, ``@task("billing:send")`` or ``@task(priority=5)``."""
    if callable(function_or_identifier):
        return _register(function_or_identifier, None, JobDefaults())
    name = _task_identifier(function_or_identifier if identifier is None else identifier)
    _refuse_unknown_options(defaults)
    job_defaults = JobDefaults(**defaults)
    schedules = _cron_lines(cron)
    options = {
        "atomic": atomic,
        "backoff": _valid_backoff(backoff),
        "give_up_on": valid_exceptions(give_up_on, name="@task(give_up_on=...)"),
        "retry_for": valid_exceptions(retry_for, name="@task(retry_for=...)"),
        "cron": schedules,
        "every": _valid_every(every, schedules),
        "keep_result": valid_keep_result(keep_result),
        "timeout": valid_timeout(timeout),
        "expires": valid_task_expires(expires),
        "schedulable": valid_schedulable(schedulable),
    }

    def decorate(function: Callable[P, R]) -> Task[P, R]:
        limits = task_limits(limit, fair, name or _name_of(function))
        return _register(function, name, job_defaults, limits=limits, **options)

    return decorate


def _register(function: Callable[P, R], identifier: str | None, defaults: JobDefaults, **options: Any) -> Task[P, R]:
    if isinstance(function, type) or not callable(function):
        raise InvalidTypeError(f"@task: expected a function, got {function!r}.")
    if isinstance(function, Task):
        raise InvalidTypeError(
            f"@task: expected a plain function, got the task {function.identifier!r}: decorate the function once."
        )
    registered = Task(function, identifier or _name_of(function), defaults=defaults, **options)
    if is_generator_function(function):
        raise InvalidTypeError(
            f"@task: expected a function that returns when it is done, got the generator {registered.place}: calling "
            "it runs nothing of its body. Remove 'yield', or move it into another function and loop over its result."
        )
    if registered.atomic and registered.is_async:
        raise InvalidTypeError(
            f"@task(atomic=True): expected a plain function, got the async function "
            f"{registered.place}: Django's transactions need 'def'. Write 'def', or omit "
            "atomic."
        )
    tasks.register(registered)
    return registered


def _refuse_unknown_options(given: Iterable[str]) -> None:
    defaults = list(JobDefaults.__annotations__)
    unknown = sorted(set(given) - set(defaults))
    if not unknown:
        return
    # Late import: only a mistake needs suggestions.
    from django_graphile_worker.suggestions import TASK_OPTIONS, did_you_mean

    options = ["identifier", *defaults, "atomic", "backoff", "give_up_on", "retry_for", "cron", "every"]
    options += ["keep_result", "timeout", "expires", "limit", "fair", "schedulable"]
    way_out = did_you_mean(unknown[0], options, TASK_OPTIONS) or f"Known options: {', '.join(options)}."
    raise InvalidTypeError(f"@task: expected a known option, got {unknown[0]!r}. {way_out}")


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(innermost(function), "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise InvalidTypeError(f'@task: expected a function with a name, got {function!r}: write @task("a_name").')
    return name


def _task_identifier(value: object) -> str | None:
    """Return the identifier; raise for a value that cannot be an identifier. A system check reports a too long one."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidTypeError(f"@task: expected a function or a task identifier (str), got {value!r}.")
    if not value:
        raise InvalidJobError("@task: expected a task identifier of 1 to 128 characters, got ''.")
    return str.__str__(value)


def _cron_lines(cron: object) -> tuple[str, ...]:
    lines = (cron,) if isinstance(cron, str) else tuple(cron) if isinstance(cron, Iterable) else ()
    if (cron is not None and not lines) or not all(isinstance(line, str) for line in lines):
        raise InvalidTypeError(
            f"@task(cron=...): expected a schedule like '0 4 * * *', or a list of them, got {cron!r}."
        )
    return lines


def _valid_every(every: object, cron: tuple[str, ...]) -> timedelta | None:
    if every is None:
        return None
    interval = to_delay(every, name="@task(every=...)", expected="a timedelta or a number of seconds")
    if not timedelta(seconds=1) <= interval <= timedelta(seconds=MAX_DURATION):
        raise InvalidJobError(f"@task(every=...): expected 1 second to ten years, got {every!r}.")
    if cron:
        raise InvalidTypeError("@task: expected cron or every, got both. Make a Schedule for one of them.")
    return interval


def _valid_backoff(backoff: Backoff | None) -> timedelta | Callable[..., Any] | None:
    if backoff is None or callable(backoff):
        return backoff
    return to_delay(backoff, name="@task(backoff=...)", expected="a timedelta, a number of seconds or a callable")


def valid_exceptions(value: Any, *, name: str) -> tuple[type[BaseException], ...]:
    """Return exception classes as a tuple; raise for anything else."""
    classes = (value,) if isinstance(value, type) or not isinstance(value, Iterable) else tuple(value)
    if not all(map(is_exception_class, classes)):
        raise InvalidTypeError(f"{name}: expected exception classes, got {value!r}.")
    return classes


def valid_keep_result(keep: object, *, name: str = "@task(keep_result=...)") -> float | bool | None:
    """Return True, False, None, or how many seconds to keep a result; raise for any other value."""
    if keep is None or isinstance(keep, bool):
        return keep
    seconds = to_delay(keep, name=name, expected="a timedelta, a number of seconds, True or False").total_seconds()
    if not 1 <= seconds <= MAX_DURATION:
        raise InvalidJobError(f"{name}: expected 1 second to ten years, got {keep!r}. To keep no result: False.")
    return seconds


def valid_timeout(timeout: object, *, name: str = "@task(timeout=...)") -> float | bool | None:
    """Return False, None, or the time limit in seconds; raise for any other value."""
    if timeout is None or timeout is False:
        return timeout
    expected = "a timedelta, a number of seconds, or False for no time limit"
    if timeout is True:
        raise InvalidTypeError(f"{name}: expected {expected}, got True.")
    seconds = to_delay(timeout, name=name, expected=expected).total_seconds()
    if not MIN_TIMEOUT <= seconds <= MAX_DURATION:
        raise InvalidJobError(
            f"{name}: expected {MIN_TIMEOUT:g} seconds to ten years, got {timeout!r}. For no time limit: False."
        )
    return seconds


def valid_task_expires(expires: object, *, name: str = "@task(expires=...)") -> float | None:
    """Return the seconds after which jobs of a task expire; None for never."""
    if expires is None:
        return None
    if isinstance(expires, datetime | bool):
        raise InvalidTypeError(f"{name}: expected a timedelta or a number of seconds from run_at on, got {expires!r}.")
    duration = valid_expires(expires, name=name)
    return duration.total_seconds() if isinstance(duration, timedelta) else None


def task_limits(limit: object, fair: object, identifier: str) -> tuple[TaskLimit, ...]:
    """Return the limits of a task, sorted by name; raise for values that cannot be used."""
    if limit is None and fair is None:
        return ()
    # Late import: most projects have no limits.
    from django_graphile_worker.limits import task_limits

    return task_limits(limit, fair, identifier)


def _is_same_function(known: Task[Any, Any], new: Task[Any, Any]) -> bool:
    """Return whether two tasks are one function whose module was imported again (reload, ``python -m``, two paths)."""
    if source_of(known.function) == source_of(new.function) != ("unknown", 0):
        return True
    # Reloading an edited module may move a function to another line. Within one import, that is another function.
    is_one_import = known.module_spec is new.module_spec is not None
    return known.origin == new.origin and not is_one_import


def _is_valid_identifier(value: str) -> bool:
    try:
        valid_identifier(value)
    except InvalidJobError:
        return False
    return True
