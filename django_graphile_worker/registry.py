"""``@task``, and the map from task identifier to task."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from asgiref.sync import markcoroutinefunction

from django_graphile_worker.exceptions import (
    InvalidJobError,
    InvalidTypeError,
)
from django_graphile_worker.jobs import Job, JobDefaults, JobKeyMode, is_valid_identifier
from django_graphile_worker.signatures import innermost, is_async_function, is_generator_function, source_of

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    from typing import Protocol

    class _TaskDecorator(Protocol):
        def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


# What other queues call our options.
_NAMES_ELSEWHERE = {"name": "identifier", "max_retries": "max_attempts", "retries": "max_attempts", "schedule": "cron"}

Backoff = timedelta | Callable[..., Any]


class Task(Generic[P, R]):
    """A function that jobs can name. Calling it just calls the function."""

    __name__: str
    __qualname__: str

    def __init__(
        self,
        function: Callable[P, R],
        identifier: str,
        *,
        defaults: JobDefaults,
        atomic: bool = False,
        backoff: Backoff | None = None,
        cron: tuple[str, ...] = (),
    ) -> None:
        self.function = function
        self.identifier = identifier
        self.defaults = defaults
        self.is_async = is_async_function(function)
        self.atomic = atomic
        self.backoff = backoff
        self.cron = cron
        functools.update_wrapper(self, function)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def add_job(self, payload: Any = None, **options: Any) -> Job:
        """Add a job for this task, with the task's defaults; options as for ``add_job``."""
        add_job, _ = _bound_adders()
        return add_job(self, payload, **options)

    async def aadd_job(self, payload: Any = None, **options: Any) -> Job:
        """Add a job for this task from asynchronous code."""
        _, aadd_job = _bound_adders()
        return await aadd_job(self, payload, **options)

    @property
    def place(self) -> str:
        """Where the function is, for people: ``module:qualname (file:line)``."""
        module, qualified_name = self.origin
        filename, line = source_of(self.function)
        return f"{module}:{qualified_name} ({filename}:{line})"

    @property
    def origin(self) -> tuple[str, str]:
        function = innermost(self.function)
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return str(getattr(function, "__module__", "")), str(name)

    def __reduce__(self) -> str:
        # Pickled and copied by name, as functions are.
        return str(getattr(self, "__qualname__", self.identifier))

    def __repr__(self) -> str:
        return f"<Task {self.identifier!r}: {':'.join(self.origin)}>"


class Registry:
    """The tasks of this process, by identifier."""

    def __init__(self) -> None:
        self._tasks: dict[str, list[Task[Any, Any]]] = {}

    def register(self, task: Task[Any, Any]) -> None:
        """Add a task. Another function under the same identifier becomes a duplicate."""
        claimants = self._tasks.setdefault(task.identifier, [])
        for index, known in enumerate(claimants):
            if _is_same_function(known, task):
                claimants[index] = task
                return
        claimants.append(task)

    def get(self, identifier: str) -> Task[Any, Any] | None:
        claimants = self._tasks.get(identifier)
        return claimants[0] if claimants else None

    def identifiers(self) -> tuple[str, ...]:
        return tuple(sorted(self._tasks))

    def usable_identifiers(self) -> tuple[str, ...]:
        """The identifiers that fit into the database; a system check tells the others."""
        return tuple(name for name in self.identifiers() if is_valid_identifier(name))

    @property
    def duplicates(self) -> tuple[tuple[Task[Any, Any], ...], ...]:
        """Groups of different functions that share one identifier."""
        return tuple(tuple(group) for _, group in sorted(self._tasks.items()) if len(group) > 1)

    @contextmanager
    def isolated(self) -> Iterator[Registry]:
        """Forget, at the end of the block, whatever was registered inside it."""
        kept = {identifier: list(group) for identifier, group in self._tasks.items()}
        try:
            yield self
        finally:
            self._tasks = kept

    def __iter__(self) -> Iterator[Task[Any, Any]]:
        return iter([group[0] for _, group in sorted(self._tasks.items())])

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._tasks

    def __len__(self) -> int:
        return len(self._tasks)


tasks = Registry()


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...


@overload
def task(
    identifier: str | None = None,
    *,
    queue_name: str | None = None,
    priority: int | None = None,
    max_attempts: int | None = None,
    flags: Iterable[str] | None = None,
    job_key: str | Callable[[Any], str | None] | None = None,
    job_key_mode: JobKeyMode | str | None = None,
    atomic: bool = False,
    backoff: Backoff | None = None,
    cron: str | Sequence[str] | None = None,
) -> _TaskDecorator: ...


def task(
    function_or_identifier: Any = None,
    /,
    *,
    identifier: str | None = None,
    atomic: bool = False,
    backoff: Backoff | None = None,
    cron: str | Sequence[str] | None = None,
    **defaults: Any,
) -> Any:
    """Register a function as a task: ``@task``, ``@task("billing:send")`` or ``@task(priority=5)``."""
    if callable(function_or_identifier):
        return _register(function_or_identifier, None, JobDefaults())
    name = _task_identifier(function_or_identifier if identifier is None else identifier)
    _refuse_unknown_options(defaults)
    job_defaults = JobDefaults(**defaults)
    schedules = _cron_lines(cron)
    _check_backoff(backoff)

    def decorate(function: Callable[P, R]) -> Task[P, R]:
        return _register(function, name, job_defaults, atomic=atomic, backoff=backoff, cron=schedules)

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
            "it runs nothing of its body. Take 'yield' out of it, or put it into another function and loop over that."
        )
    if registered.atomic and registered.is_async:
        raise InvalidTypeError(
            f"@task(atomic=True): expected a plain function, got the async function "
            f"{registered.place}: Django's transactions need 'def'. Write 'def', or leave "
            "atomic out."
        )
    tasks.register(registered)
    return registered


def _refuse_unknown_options(given: Iterable[str]) -> None:
    defaults = list(JobDefaults.__annotations__)
    options = ["identifier", *defaults, "atomic", "backoff", "cron"]
    for name in set(given) - set(defaults):
        meant = _NAMES_ELSEWHERE.get(name) or next(iter(difflib.get_close_matches(name, options, n=1)), None)
        way_out = f"Did you mean {meant!r}?" if meant else f"There are {', '.join(options)}."
        raise InvalidTypeError(f"@task: expected an option that it knows, got {name!r}. {way_out}")


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(innermost(function), "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise InvalidTypeError(f'@task: expected a function with a name, got {function!r}: write @task("a_name").')
    return name


def _task_identifier(value: object) -> str | None:
    """Refuse what cannot be a name; a name that is too long is a system check's business."""
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


def _check_backoff(backoff: object) -> None:
    if backoff is not None and not isinstance(backoff, timedelta) and not callable(backoff):
        raise InvalidTypeError(f"@task(backoff=...): expected a timedelta or a callable, got {backoff!r}.")


def _is_same_function(known: Task[Any, Any], new: Task[Any, Any]) -> bool:
    """Tell a module imported again (reload, ``python -m``, two paths) from a second function."""
    return known.origin == new.origin or (source_of(known.function) == source_of(new.function) != ("unknown", 0))


AddJob = Callable[..., Job]
AAddJob = Callable[..., Coroutine[Any, Any, Job]]

# How tasks reach ``api.add_job``, which lives above this module.
_adders: tuple[AddJob, AAddJob] | None = None


def bind_adder(add_job: AddJob, aadd_job: AAddJob) -> None:
    """Called once by the API, so that imports only go down."""
    global _adders
    _adders = add_job, aadd_job


def _bound_adders() -> tuple[AddJob, AAddJob]:
    """The API binds itself when it is loaded; a process that adds no jobs does without it."""
    if _adders is None:
        import_module("django_graphile_worker.api")
        assert _adders is not None
    return _adders
