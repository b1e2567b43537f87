"""Makes the asynchronous variants of the API's functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

P = ParamSpec("P")
R = TypeVar("R")


def async_variant(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return a coroutine function that calls the function in the thread that holds Django's connection.

    The call is therefore part of a transaction around it, like a call of the synchronous function.
    """
    run = sync_to_async(function, thread_sensitive=True)

    @functools.wraps(function)
    async def variant(*args: P.args, **kwargs: P.kwargs) -> R:
        return await run(*args, **kwargs)

    variant.__name__ = variant.__qualname__ = f"a{function.__name__}"
    variant.__doc__ = f"Asynchronous variant of ``{function.__name__}()``."
    return variant
