"""What a callable for FORBIDDEN_FLAGS returns, checked and added to."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from django.utils.module_loading import import_string

from django_graphile_worker.exceptions import ConfigurationError, SettingMistake


def checked_flags(flags: Any) -> tuple[str, ...]:
    """The flags, if that is what they are. A string is none: its letters would be."""
    if flags is None:
        return ()
    found = tuple(flags) if isinstance(flags, Iterable) and not isinstance(flags, str | bytes) else (None,)
    if not all(isinstance(flag, str) and flag for flag in found):
        problem = f'GRAPHILE_WORKER["FORBIDDEN_FLAGS"]: expected its callable to return a list of flags, got {flags!r}.'
        raise ConfigurationError(mistakes=[SettingMistake(key="FORBIDDEN_FLAGS", message=problem)])
    return found


class MoreFlags:
    """A callable for FORBIDDEN_FLAGS: what another one returns, sync or async, and some more."""

    def __init__(self, source: Callable[[], Any] | str, more: tuple[str, ...]) -> None:
        self.source = source
        self.more = more

    def __call__(self) -> Any:
        flags: Any = (import_string(self.source) if isinstance(self.source, str) else self.source)()
        return self._after(flags) if inspect.isawaitable(flags) else (*checked_flags(flags), *self.more)

    async def _after(self, flags: Awaitable[Any]) -> tuple[str, ...]:
        return (*checked_flags(await flags), *self.more)
