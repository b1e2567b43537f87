"""``GraphileTask``, the decorator ``task`` that makes it, which tasks the backend accepts, and how they are found.

Django 6.1 passes additional keywords of ``@task`` on to the backend, but its type stubs refuse them; Django 6.0 refuses
them at all. ``task`` takes them with every version, and makes the same tasks.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload

from django.utils.module_loading import import_string

from django_graphile_worker import job_options
from django_graphile_worker.backend.compat import (
    DEFAULT_TASK_BACKEND_ALIAS,
    DEFAULT_TASK_QUEUE_NAME,
    TASK_MAX_PRIORITY,
    TASK_MIN_PRIORITY,
    InvalidTask,
    Task,
    TaskContext,
    task_backends,
)
from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError, to_delay
from django_graphile_worker.job_options import (
    DefaultOptions,
    Expires,
    Headers,
    JobKeyModeOption,
    Unique,
    valid_expires,
    valid_headers,
    valid_identifier,
    valid_run_at,
    valid_unique,
)
from django_graphile_worker.jobs import JobDefaults
from django_graphile_worker.limits import Limit, TaskLimit, task_limits
from django_graphile_worker.registry import (
    Exceptions,
    identifier_for,
    is_path,
    valid_exceptions,
    valid_keep_result,
    valid_schedulable,
    valid_timeout,
)
from django_graphile_worker.text import did_you_mean

P = ParamSpec("P")
R = TypeVar("R")

JobKey = str | Callable[..., str | None]
Backoff = timedelta | float | Callable[..., Any]
KeepResult = timedelta | float | bool
Timeout = timedelta | float | bool

if TYPE_CHECKING:
    _Task = Task
else:

    class _Task(Task):
        """Django's ``Task``, which is generic for type checkers only."""

        __slots__ = ()

        def __class_getitem__(cls, arguments: Any) -> Any:
            return cls


class _JobOptions(TypedDict, total=False):
    """The options that a task has for its jobs, and a call for its job."""

    max_attempts: int | None
    job_key: JobKey | None
    job_key_mode: JobKeyModeOption | None
    unique: Unique | str | bool | None
    flags: Iterable[str] | None
    expires: Expires | None


class TaskOptions(_JobOptions, total=False):
    """The keyword arguments of ``task()``, except ``takes_context``."""

    priority: int
    queue_name: str
    backend: str
    backoff: Backoff | None
    give_up_on: Exceptions
    retry_for: Exceptions
    atomic: bool
    keep_result: KeepResult | None
    timeout: Timeout | None
    limit: Limit | Sequence[Limit] | None
    fair: str | Callable[..., Any] | None
    schedulable: bool | str


class CallOptions(_JobOptions, total=False):
    """The keyword arguments of ``using()``."""

    headers: Headers | None

    priority: int | None
    queue_name: str | None
    run_after: datetime | timedelta | None
    backend: str | None


# The options of a job that a Django task has under the same names.
JOB_OPTIONS = tuple(_JobOptions.__annotations__)
# The options that @task takes in addition to those of Django.
OPTIONS = tuple(name for name in TaskOptions.__annotations__ if name not in ("priority", "queue_name", "backend"))


def refuse_unknown_options(options: Iterable[str]) -> None:
    """Raise InvalidTypeError if ``@task`` got an option that neither Django nor this package has."""
    unknown = sorted(set(options) - set(OPTIONS))
    if not unknown:
        return
    if unknown[0] == "run_after":
        raise InvalidTypeError("@task takes no run_after. Use .using(run_after=...).")
    known = ["priority", "queue_name", "backend", "takes_context", *OPTIONS]
    way_out = did_you_mean(unknown[0], known) or f"Known options: {', '.join(known)}."
    raise InvalidTypeError(f"@task has no option {unknown[0]!r}. {way_out}")


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
    # Of using(): what the job has beside the arguments of the call.
    headers: Headers | None = field(default=None, compare=False)
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

    def using(self, **changes: Unpack[CallOptions]) -> GraphileTask[P, R]:
        """Return a task with these changes. ``run_after`` is a time, or a timedelta from the moment of the call."""
        unknown = next(iter(changes.keys() - CallOptions.__annotations__.keys()), None)
        if unknown is not None:
            way_out = did_you_mean(unknown, CallOptions.__annotations__)
            raise InvalidTypeError(f"using() has no option {unknown!r}. {way_out}".rstrip())
        given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
        return replace(self, **given)

    def job_options(self) -> dict[str, Any]:
        """Return the options that a job has under the same names."""
        return {name: getattr(self, name) for name in (*JOB_OPTIONS, "headers")}

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
        bound = inspect.signature(self.func, follow_wrapped=False).bind(*context, *args, **kwargs)
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
        JobDefaults(**defaults_of(task))
        backoff_of(task)
        valid_exceptions(task.give_up_on, name="give_up_on")
        valid_exceptions(task.retry_for, name="retry_for")
        keep_result_of(task)
        timeout_of(task)
        valid_expires(task.expires)
        valid_headers(task.headers)
        limits_of(task)
        valid_schedulable(task.schedulable, name="schedulable")
        if not isinstance(task.atomic, bool):
            raise InvalidTypeError(f"atomic: expected True or False, got {task.atomic!r}.")
    except (InvalidTypeError, InvalidJobError) as error:
        raise InvalidTask(f"@task of {task.module_path}: {error}") from error


def defaults_of(task: GraphileTask[Any, Any]) -> DefaultOptions:
    """Return the options of a task that are also those of a task of ``@django_graphile_worker.task``."""
    options: Any = {name: value for name, value in task.job_options().items() if job_options.OPTIONS[name].is_of_tasks}
    return cast("DefaultOptions", options)


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


@overload
def task(function: Callable[P, R], /) -> GraphileTask[P, R]: ...
@overload
def task(
    *, takes_context: Literal[True], **options: Unpack[TaskOptions]
) -> Callable[[Callable[Concatenate[TaskContext[Any, Any], P], R]], GraphileTask[P, R]]: ...
@overload
def task(
    *, takes_context: Literal[False] = False, **options: Unpack[TaskOptions]
) -> Callable[[Callable[P, R]], GraphileTask[P, R]]: ...
def task(
    function: Any = None,
    /,
    *,
    priority: int = 0,
    queue_name: str = DEFAULT_TASK_QUEUE_NAME,
    backend: str = DEFAULT_TASK_BACKEND_ALIAS,
    takes_context: bool = False,
    **options: Any,
) -> Any:
    """Make a Django task of a function: ``@task``, or ``@task(max_attempts=3)``.

    If the setting ``TASKS`` names another backend, for tests for example, the additional options have no effect.
    """
    refuse_unknown_options(options)

    def decorate(function: Callable[..., Any]) -> Any:
        task_class: Any = task_backends[backend].task_class
        taken = options if issubclass(task_class, GraphileTask) else {}
        return task_class(
            func=function,
            priority=priority,
            queue_name=queue_name,
            backend=backend,
            takes_context=takes_context,
            run_after=None,
            **taken,
        )

    return decorate if function is None else decorate(function)


def validate_priority(task: Task[..., Any]) -> None:
    priority: Any = task.priority
    is_whole = isinstance(priority, int | float) and not isinstance(priority, bool) and priority % 1 == 0
    if not is_whole or not TASK_MIN_PRIORITY <= priority <= TASK_MAX_PRIORITY:
        raise InvalidTask(
            f"priority must be a whole number between {TASK_MIN_PRIORITY} and {TASK_MAX_PRIORITY}. "
            f"Got {priority!r}; a larger number runs sooner."
        )


def validate_label(task: Task[..., Any], labels: set[str], alias: str) -> None:
    label: Any = task.queue_name
    if not isinstance(label, str) or not label:
        raise InvalidTask(f"queue_name: expected a label, a string of at least one character, got {label!r}.")
    if labels and label not in labels:
        raise InvalidTask(
            f"Queue '{label}' is not valid for backend. Expected one of {', '.join(map(repr, sorted(labels)))}: "
            f'add it to TASKS["{alias}"]["QUEUES"].'
        )


def validate_identifier(task: Task[..., Any]) -> None:
    label = task.queue_name
    try:
        valid_identifier(identifier_for(task.module_path, label))
    except InvalidJobError as error:
        raise InvalidTask(
            f"The path of the function and the label {label!r} are the task identifier of its jobs: {error}"
        ) from error


def validate_run_after(run_after: Any) -> None:
    """Raise InvalidTask for a value that is neither a time nor a timedelta, or too far away."""
    if run_after is None:
        return
    if not isinstance(run_after, datetime | timedelta):
        raise InvalidTask(f"run_after: expected a datetime or a timedelta, got {run_after!r}.")
    try:
        valid_run_at(run_after)
    except InvalidJobError as error:
        raise InvalidTask(str(error).replace("run_at", "run_after")) from error


def validate_arguments(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise InvalidTypeError, as calling the function would raise TypeError, if it does not take the arguments."""
    context = (None,) if task.takes_context else ()
    try:
        _signature(task.func).bind(*context, *args, **kwargs)
    except TypeError as error:
        raise InvalidTypeError(f"enqueue() of {task.module_path}: {error}.") from None


# enqueue_many() may get thousands of calls of one task.
@lru_cache(maxsize=256)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    # That of the function itself: a decorator may take other arguments than the function inside it.
    return inspect.signature(function, follow_wrapped=False)


def declared_task(task: Task[..., Any]) -> Task[..., Any]:
    """Return the task as it was declared; raise InvalidTask if a worker would not find it under its path."""
    found = _attribute(task.func.__module__, task.func.__qualname__)
    if isinstance(found, Task) and _is_task_of(found, task):
        if is_ours(found):
            return found
        raise InvalidTask(
            f"{task.module_path} is a task of the backend {found.backend!r}. A worker runs only tasks of a "
            f"GraphileWorkerBackend: write @task(backend={task.backend!r})."
        )
    raise InvalidTask(
        f"A worker imports a task by the path of its function, and at {task.module_path!r} is {found!r}. "
        "Decorate the function where it is defined, and keep its name."
    )


def is_declared(task: Task[..., Any]) -> bool:
    """Return whether the module has this task already, so that another ``Task`` of the function is a copy."""
    return _is_task_of(_attribute(task.func.__module__, task.func.__qualname__), task)


def _is_task_of(found: Any, task: Task[..., Any]) -> bool:
    return isinstance(found, Task) and found.func is task.func


def _attribute(module: str, path: str) -> Any:
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def find_django_task(path: str) -> Task[..., Any] | None:
    """Return the task at this path, or None if there is none, or its module cannot be imported."""
    try:
        return import_django_task(path)
    except (Exception, SystemExit):
        return None


def import_django_task(path: str) -> Task[..., Any] | None:
    """Return the task at this path, or None for anything else; raise what the import of its module raises.

    The name of a job may come from any program that can add jobs, so a function, a class, or a task of another backend
    at this path does not count.
    """
    if not is_path(path):
        return None
    found = _loaded(path)
    if found is None:
        # A module may have been added since the directories were read.
        importlib.invalidate_caches()
        try:
            found = pkgutil.resolve_name(path)
        except AttributeError:
            return None
    return found if is_ours(found) else None


def is_ours(value: Any) -> bool:
    """Return whether a value is a task whose backend is a ``GraphileWorkerBackend``."""
    if not isinstance(value, Task):
        return False
    try:
        return getattr(type(task_backends[value.backend]), "runs_in_graphile_worker", False) is True
    except Exception:  # the alias is not in settings.TASKS any more
        return False


def _loaded(path: str) -> Any:
    """Return what a module that is loaded has at this path, or None."""
    module, _, name = path.rpartition(".")
    return getattr(sys.modules.get(module), name, None)
