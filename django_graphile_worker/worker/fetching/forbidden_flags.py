"""The forbidden flags: jobs that have one of them are not claimed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable
from typing import Any

from django.db import close_old_connections
from django.utils.module_loading import import_string

from django_graphile_worker.conf import Settings, checked_flags
from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.worker import fork_guard


class ForbiddenFlags:
    """The paused flags, and the setting ``FORBIDDEN_FLAGS``: flags, or a callable, which is called for every claim."""

    def __init__(self, settings: Settings) -> None:
        self._flags = settings.forbidden_flags
        if isinstance(self._flags, str):
            self._flags = import_string(self._flags)
        self._paused: tuple[str, ...] = ()
        # All flags, if no callable has to be asked for some of them.
        self._fixed = self._flags if isinstance(self._flags, tuple) else None

    def pause(self, flags: Iterable[str]) -> None:
        """Forbid these flags, too, and no longer the flags of the last call."""
        self._paused = tuple(sorted(flags))
        if isinstance(self._flags, tuple):
            self._fixed = (*self._flags, *self._paused)

    def __call__(self) -> tuple[str, ...]:
        """Return the flags as they are now."""
        if self._fixed is not None:
            return self._fixed
        born_in = fork_guard.generation
        try:
            return (*checked_flags(self._called()), *self._paused)
        except ConfigurationError:
            raise
        except BaseException as error:  # even SystemExit: it is the site's code
            raise ConfigurationError(
                'GRAPHILE_WORKER["FORBIDDEN_FLAGS"]: expected its callable to return a list of flags, '
                f"got {type(error).__name__}: {error}"
            ) from error
        finally:
            # A process that the callable forked must not claim.
            fork_guard.end_child(born_in)
            # The callable may query the database, on this thread: a broken connection must not stay open.
            close_old_connections()

    def _called(self) -> Any:
        flags: Any = self._flags() if callable(self._flags) else ()
        return asyncio.run(_result_of(flags)) if inspect.isawaitable(flags) else flags


async def _result_of(awaitable: Any) -> Any:
    return await awaitable
