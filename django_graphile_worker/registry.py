"""``@task``, the tasks of this process by identifier, the identifiers of Django tasks, and permissions of tasks."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from asgiref.sync import markcoroutinefunction

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError, to_delay
from django_graphile_worker.job_options import OPTIONS, DefaultOptions, JobOptions, valid_expires, valid_identifier
from django_graphile_worker.jobs import Job, JobDefaults
from django_graphile_worker.limits import Key, Limit, TaskLimit, task_limits
from django_graphile_worker.setting_types import MAX_DURATION, MIN_TIMEOUT, is_exception_class
from django_graphile_worker.task_functions import innermost, is_async_function, is_generator_function, source_of
from django_graphile_worker.text import TASK_ATTRIBUTES, TASK_OPTIONS, did_you_mean

# How long a task with keep_result=True keeps its results if the setting KEEP_RESULTS is None.
DEFAULT_RESULT_SECONDS = 86_400.0

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

# A number means seconds.
Backoff = timedelta | float | Callable[..., Any]
Exceptions = type[BaseException] | Iterable[type[BaseException]]

# A Django task has no serial queue. Its label, which Django calls a queue name, is a part of the task identifier,
# ``shop.tasks.send@emails``, so that a worker that runs only some labels claims only some tasks, which costs nothing.
# The label ``default`` is left out.
DEFAULT_LABEL = "default"
SEPARATOR = "@"
# The longest codename that Django stores.
MAX_CODENAME_LENGTH = 100
_CODENAME_PREFIX = "schedule:"

if TYPE_CHECKING:
    # Nothing requires this package at run time.
    import typing_extensions

    # The type of the first parameter. It has a default, so that Task[[Receipt], None] is valid.
    Payload = typing_extensions.TypeVar("Payload", default=Any)
else:
    Payload = TypeVar("Payload")


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


class _PydanticModel(Protocol):
    def model_dump_json(self) -> str: ...


class _MsgspecStruct(Protocol):
    __struct_fields__: ClassVar[tuple[str, ...]]


# Types to which an annotation can convert a JSON object; add_job() takes their instances, and dicts.
Model = TypeVar("Model", bound=_Dataclass | _PydanticModel | _MsgspecStruct)


class RunReports(Protocol):
    """What a worker reports of the runs of a Django task."""

    def is_end_heard(self, *, succeeded: bool) -> bool:
        """Return whether ``finish()`` has anything to do."""

    def forget(self, job_id: int, attempts: int) -> None:
        """Note that a run ended, and its job did not."""

    def finish(self, job_id: int, attempts: int, payload_text: str, *, succeeded: bool) -> None:
        """Note that the database has stored the end of a job."""


class TaskDecorator(Protocol):
    @overload
    def __call__(
        self, function: Callable[Concatenate[Payload, Q], R], /
    ) -> Task[Concatenate[Payload, Q], R, Payload]: ...
    @overload
    def __call__(self, function: Callable[Q, R], /) -> Task[Q, R, None]: ...


class Task(Generic[P, R, Payload]):
    """A registered function. Calling the task calls the function."""

    __name__: str
    __qualname__: str

    # The labels that workers run if they are given no others; empty for all. Only Django tasks have labels.
    default_labels: tuple[str, ...] = ()
    # Reports runs to the framework of Django Tasks; None for all other tasks.
    signals: RunReports | None = None

    if not TYPE_CHECKING:
        # Only type checkers support the default of Payload: at run time, Python 3.11 would require all three arguments.
        def __class_getitem__(cls, arguments: Any) -> GenericAlias:
            return GenericAlias(cls, arguments)

        def __getattr__(self, name: str) -> Any:
            own = [known for known in dir(type(self)) if not known.startswith("_")]
            way_out = did_you_mean(name, own, TASK_ATTRIBUTES) if not name.startswith("_") else ""
            message = f"The task {vars(self).get('identifier', '?')!r} has no attribute {name!r}. {way_out}".rstrip()
            raise AttributeError(message, name=name, obj=self)

    def __init__(
        self,
        function: Callable[P, R],
        identifier: str,
        *,
        defaults: JobDefaults,
        atomic: bool = False,
        backoff: timedelta | Callable[..., Any] | None = None,
        give_up_on: tuple[type[BaseException], ...] = (),
        retry_for: tuple[type[BaseException], ...] = (),
        cron: tuple[str, ...] = (),
        every: timedelta | None = None,
        keep_result: float | bool | None = None,
        keeps_payload: bool = False,
        timeout: float | bool | None = None,
        expires: float | None = None,
        limits: tuple[TaskLimit, ...] = (),
        schedulable: bool | str = False,
    ) -> None:
        self.function = function
        self.identifier = identifier
        self._defaults = defaults
        self.is_async = is_async_function(function)
        self.atomic = atomic
        self.backoff = backoff
        # Exceptions that are not retried; and if there are any, the only exceptions that are retried.
        self.give_up_on = give_up_on
        self.retry_for = retry_for
        self.cron = cron
        self.every = every
        # Seconds; True for the setting KEEP_RESULTS or a day, False for never, None for the setting.
        self.keep_result = keep_result
        # Whether the payload is kept with the result.
        self.keeps_payload = keeps_payload
        # Seconds; False for no time limit, None for the setting TIMEOUT.
        self.timeout = timeout
        # Seconds after run_at by which a job must have been started; None for no such time.
        self.expires = expires
        # How many of its jobs run at once or start in a time, sorted by name.
        self.limits = limits
        # Whether users may schedule it in the admin, or the permission that lets them.
        self.schedulable = schedulable
        # The import that ran the decorator: reloading a module makes another one.
        self.module_spec = getattr(innermost(function), "__globals__", {}).get("__spec__")
        functools.update_wrapper(self, function)
        if self.is_async:
            markcoroutinefunction(self)

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(self, *, payload: Payload, **kwargs: Any) -> R: ...
    def __call__(self, *args: Any, **kwargs: Any) -> R:
        return self.function(*args, **kwargs)

    @overload
    def add_job(self, payload: Payload | None = None, **options: Unpack[JobOptions]) -> Job: ...
    @overload
    def add_job(self: Task[P, R, Model], payload: Mapping[str, Any], **options: Unpack[JobOptions]) -> Job: ...
    @overload
    def add_job(self: Task[P, R, Model | None], payload: Mapping[str, Any], **options: Unpack[JobOptions]) -> Job: ...
    @overload
    def add_job(
        self: Task[P, R, list[Model]], payload: Sequence[Model | Mapping[str, Any]], **options: Unpack[JobOptions]
    ) -> Job: ...
    def add_job(self, payload: Any = None, *others: Any, **options: Any) -> Job:
        """Add a job for this task, with the task's defaults. The options are those of ``add_job()``."""
        # Late import: the API imports this module.
        from django_graphile_worker.api.add import add_job

        return add_job(self, payload, *others, **options)

    @overload
    async def aadd_job(self, payload: Payload | None = None, **options: Unpack[JobOptions]) -> Job: ...
    @overload
    async def aadd_job(self: Task[P, R, Model], payload: Mapping[str, Any], **options: Unpack[JobOptions]) -> Job: ...
    @overload
    async def aadd_job(
        self: Task[P, R, Model | None], payload: Mapping[str, Any], **options: Unpack[JobOptions]
    ) -> Job: ...
    @overload
    async def aadd_job(
        self: Task[P, R, list[Model]], payload: Sequence[Model | Mapping[str, Any]], **options: Unpack[JobOptions]
    ) -> Job: ...
    async def aadd_job(self, payload: Any = None, *others: Any, **options: Any) -> Job:
        """Asynchronous variant of ``add_job()``."""
        # Late import: the API imports this module.
        from django_graphile_worker.api.add import aadd_job

        return await aadd_job(self, payload, *others, **options)

    def result_seconds(self, default: float | None) -> float | None:
        """Return for how many seconds results are kept, None if they are not; the default is the setting."""
        if self.keep_result is None:
            return default
        if self.keep_result is True:
            return DEFAULT_RESULT_SECONDS if default is None else default
        return self.keep_result or None

    def time_limit(self, default: float | None) -> float | None:
        """Return for how many seconds a run may last, None for no limit; the default is the setting TIMEOUT."""
        return default if self.timeout is None else self.timeout or None

    @property
    def defaults(self) -> JobDefaults:
        """What a job gets where whoever adds it, or its schedule, says nothing."""
        return self._defaults

    def key_fields(self, payload: Any) -> Any:
        """Return the value whose fields the template of a limit names: the payload, as JSON values."""
        return payload

    def key_from(self, function: Callable[..., Any], payload: Any) -> Any:
        """Call the key function of a limit."""
        return function(payload)

    @property
    def place(self) -> str:
        """The place of the function in messages: ``module:qualname (file:line)``."""
        module, qualified_name = self.origin
        filename, line = source_of(self.function)
        return f"{module}:{qualified_name} ({filename}:{line})"

    @property
    def origin(self) -> tuple[str, str]:
        function = innermost(self.function)
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return str(getattr(function, "__module__", "")), str(name)

    def __reduce__(self) -> str:
        # Like a function, a task is pickled and copied by its name.
        return str(getattr(self, "__qualname__", self.identifier))

    def __repr__(self) -> str:
        return f"<Task {self.identifier!r}: {':'.join(self.origin)}>"


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
    **defaults: Unpack[DefaultOptions],
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
        raise InvalidTypeError(f"@task: the function is the task {function.identifier!r} already: decorate it once.")
    registered = Task(function, identifier or _name_of(function), defaults=defaults, **options)
    if is_generator_function(function):
        raise InvalidTypeError(
            f"@task: {registered.place} is a generator: calling it runs nothing of its body. "
            "Remove 'yield', or move it into another function and loop over its result."
        )
    if registered.atomic and registered.is_async:
        raise InvalidTypeError(
            f"@task(atomic=True): {registered.place} is async, and Django's transactions need 'def'. "
            "Write 'def', or omit atomic."
        )
    tasks.register(registered)
    return registered


def _refuse_unknown_options(given: Iterable[str]) -> None:
    defaults = [option.name for option in OPTIONS.values() if option.is_of_tasks]
    unknown = sorted(set(given) - set(defaults))
    if not unknown:
        return
    options = ["identifier", *defaults, "atomic", "backoff", "give_up_on", "retry_for", "cron", "every"]
    options += ["keep_result", "timeout", "expires", "limit", "fair", "schedulable"]
    way_out = did_you_mean(unknown[0], options, TASK_OPTIONS) or f"Known options: {', '.join(options)}."
    raise InvalidTypeError(f"@task has no option {unknown[0]!r}. {way_out}")


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(innermost(function), "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise InvalidTypeError(f'@task: {function!r} has no name: write @task("a_name").')
    return name


def _task_identifier(value: object) -> str | None:
    """Return the identifier; raise for a value that cannot be an identifier. A system check reports a too long one."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidTypeError(f"@task: expected a function or a task identifier (str), got {value!r}.")
    if not value:
        raise InvalidJobError("@task: a task identifier has 1 to 128 characters, got ''.")
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
        raise InvalidTypeError("@task takes cron or every, not both. Make a Schedule for one of them.")
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


def valid_schedulable(value: object, *, name: str = "@task(schedulable=...)") -> bool | str:
    """Return True, False or the name of a permission; raise InvalidTypeError for any other value."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        app, separator, codename = value.partition(".")
        if separator and app.isidentifier() and codename and codename == codename.strip():
            return str.__str__(value)
    raise InvalidTypeError(
        f"{name}: expected True, False, or a permission like 'billing.schedule_reports', got {value!r}."
    )


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


def identifier_for(path: str, label: str) -> str:
    """Return the task identifier of a function's path and a label."""
    return path if label == DEFAULT_LABEL else f"{path}{SEPARATOR}{label}"


def split_identifier(identifier: str) -> tuple[str, str]:
    """Return the path and the label of a task identifier; an identifier that is no path has the label ``default``."""
    path, separator, label = identifier.partition(SEPARATOR)
    if separator and label and is_path(path):
        return path, label
    return identifier, DEFAULT_LABEL


def label_of(identifier: str) -> str:
    return split_identifier(identifier)[1]


def is_path(text: str) -> bool:
    """Return whether a text can be the path of a function in a module: names with dots between them."""
    module, _, name = text.rpartition(".")
    return bool(module) and all(part.isidentifier() for part in (*module.split("."), name))


def schedule_codename(identifier: str) -> str:
    """Return the codename of the permission to schedule a task. A long identifier is cut, and ends with its digest."""
    codename = f"{_CODENAME_PREFIX}{identifier}"
    if len(codename) <= MAX_CODENAME_LENGTH:
        return codename
    digest = hashlib.sha256(identifier.encode()).hexdigest()[:16]
    return f"{codename[: MAX_CODENAME_LENGTH - len(digest) - 1]}~{digest}"
