"""``Task``, and the types of its ``add_job()`` for type checkers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from asgiref.sync import markcoroutinefunction

from django_graphile_worker.jobs import Job, JobDefaults
from django_graphile_worker.signatures import innermost, is_async_function, source_of

# How long a task with keep_result=True keeps its results if the setting KEEP_RESULTS is None.
DEFAULT_RESULT_SECONDS = 86_400.0

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import ClassVar, Concatenate, Protocol, Unpack

    import typing_extensions

    from django_graphile_worker.jobs import JobOptions
    from django_graphile_worker.limits import TaskLimit

    # The type of the first parameter. It has a default, so that Task[[Receipt], None] is valid.
    Payload = typing_extensions.TypeVar("Payload", default=Any)

    class _Dataclass(Protocol):
        __dataclass_fields__: ClassVar[dict[str, Any]]

    class _PydanticModel(Protocol):
        def model_dump_json(self) -> str: ...

    class _MsgspecStruct(Protocol):
        __struct_fields__: ClassVar[tuple[str, ...]]

    # Types to which an annotation can convert a JSON object; add_job() takes their instances, and dicts.
    Model = TypeVar("Model", bound=_Dataclass | _PydanticModel | _MsgspecStruct)

    class RunReports(Protocol):
        """What a worker tells about the runs of a Django task."""

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
else:
    Payload = TypeVar("Payload")


class Task(Generic[P, R, Payload]):
    """A registered function. Calling the task calls the function."""

    __name__: str
    __qualname__: str

    # The labels that workers run if they are not told others; empty for all. Only Django tasks have labels.
    default_labels: tuple[str, ...] = ()
    # Reports runs to the framework of Django Tasks; None for all other tasks.
    events: RunReports | None = None

    if not TYPE_CHECKING:
        # Only type checkers support the default of Payload: at run time, Python 3.11 would require all three arguments.
        def __class_getitem__(cls, arguments: Any) -> GenericAlias:
            return GenericAlias(cls, arguments)

        def __getattr__(self, name: str) -> Any:
            # Late import: only a mistake needs suggestions.
            from django_graphile_worker.suggestions import TASK_ATTRIBUTES, did_you_mean

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
    def add_job(self, payload: Any = None, *mistaken: Any, **options: Any) -> Job:
        """Add a job for this task, with the task's defaults. The options are those of ``add_job()``."""
        # Late import: the API is a higher layer, and a process that adds no jobs never loads it.
        from django_graphile_worker.api.add import add_job

        return add_job(self, payload, *mistaken, **options)

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
    async def aadd_job(self, payload: Any = None, *mistaken: Any, **options: Any) -> Job:
        """Asynchronous variant of ``add_job()``."""
        # Late import: the API is a higher layer, and a process that adds no jobs never loads it.
        from django_graphile_worker.api.add import aadd_job

        return await aadd_job(self, payload, *mistaken, **options)

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
