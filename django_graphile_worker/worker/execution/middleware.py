"""``GRAPHILE_WORKER["MIDDLEWARE"]``: callables around every job, in the shape of Django's middleware."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.core.exceptions import MiddlewareNotUsed
from django.utils.module_loading import import_string

from django_graphile_worker.exceptions import ConfigurationError, SettingMistake
from django_graphile_worker.worker.execution.event_loop import EventLoop, protect_from_cancellation

Factory = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Handler:
    """A callable that takes a job and returns its result: the task, or middleware around it."""

    call: Callable[[Any], Any]
    is_async: bool


def load(paths: Iterable[str]) -> tuple[Factory, ...]:
    """Import the factories; raise ConfigurationError for the first that cannot be imported."""
    return tuple(_load(path) for path in paths)


def _load(path: str) -> Factory:
    try:
        factory = import_string(path)
    except ImportError as error:
        problem = f'GRAPHILE_WORKER["MIDDLEWARE"]: cannot import {path!r} ({error}).'
        raise ConfigurationError(mistakes=[SettingMistake(key="MIDDLEWARE", message=problem)]) from error
    if not callable(factory):
        problem = f'GRAPHILE_WORKER["MIDDLEWARE"]: expected a callable, got {factory!r} at {path!r}.'
        raise ConfigurationError(mistakes=[SettingMistake(key="MIDDLEWARE", message=problem)])
    return factory  # type: ignore[no-any-return]


def build(factories: Sequence[Factory], innermost: Handler, event_loop: EventLoop) -> Handler:
    """Wrap the innermost handler. The first factory makes the outermost middleware."""
    handler = innermost
    for factory in reversed(factories):
        try:
            handler = _wrap(factory, handler, event_loop)
        except MiddlewareNotUsed:
            continue
        except ConfigurationError:
            raise
        except Exception as error:
            raise ConfigurationError(
                f'GRAPHILE_WORKER["MIDDLEWARE"]: expected {_name(factory)!r} to return a callable, '
                f"got {type(error).__name__}: {error}"
            ) from error
    return handler


def _name(factory: Factory) -> str:
    return f"{factory.__module__}.{getattr(factory, '__qualname__', type(factory).__qualname__)}"


def _wrap(factory: Factory, inner: Handler, event_loop: EventLoop) -> Handler:
    """Build middleware around a handler, adapted to sync or async as the middleware needs it; as Django does."""
    if inner.is_async and not getattr(factory, "async_capable", False):
        return _instance(factory, _to_sync(inner, event_loop))
    if not inner.is_async and not getattr(factory, "sync_capable", True):
        return _instance(factory, _to_async(inner))
    return _instance(factory, inner)


def _instance(factory: Factory, inner: Handler) -> Handler:
    middleware = factory(inner.call)
    if not callable(middleware):
        raise ConfigurationError(
            f'GRAPHILE_WORKER["MIDDLEWARE"]: expected {_name(factory)!r} to return a callable, got {middleware!r}.'
        )
    is_async = _is_async(middleware)
    if is_async and not inner.is_async:
        # Async middleware that does not declare itself async_capable: it awaits what it calls.
        middleware = factory(_to_async(inner).call)
    return Handler(call=_as_coroutine_function(middleware) if is_async else middleware, is_async=is_async)


def _is_async(middleware: Any) -> bool:
    return iscoroutinefunction(middleware) or iscoroutinefunction(type(middleware).__call__)


def _as_coroutine_function(middleware: Any) -> Any:
    """Return a callable that passes iscoroutinefunction, as the next middleware expects.

    An object with an async ``__call__`` does not pass it.
    """
    if iscoroutinefunction(middleware):
        return middleware

    async def get_result(job: Any) -> Any:
        return await middleware(job)

    return get_result


def _to_sync(handler: Handler, event_loop: EventLoop) -> Handler:
    """Return a handler for a slot's thread, which serves the coroutine until it has ended."""

    def get_result(job: Any) -> Any:
        return event_loop.run(lambda: handler.call(job))

    return Handler(call=get_result, is_async=False)


def _to_async(handler: Handler) -> Handler:
    """Return a handler for the loop; the slot's thread, which waits for the coroutine, runs it."""
    call = sync_to_async(handler.call)

    async def get_result(job: Any) -> Any:
        protect_from_cancellation()
        return await call(job)

    return Handler(call=get_result, is_async=True)
