"""Checks and extends the flags that a callable for the setting FORBIDDEN_FLAGS returns."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from django.utils.module_loading import import_string

from django_graphile_worker.exceptions import ConfigurationError, SettingMistake


def checked_flags(flags: Any) -> tuple[str, ...]:
    """Return the flags, or raise ConfigurationError. A string is refused: its letters would become flags."""
    if flags is None:
        return ()
    found = tuple(flags) if isinstance(flags, Iterable) and not isinstance(flags, str | bytes) else (None,)
    if not all(isinstance(flag, str) and flag for flag in found):
        problem = f'GRAPHILE_WORKER["FORBIDDEN_FLAGS"]: expected its callable to return a list of flags, got {flags!r}.'
        raise ConfigurationError(mistakes=[SettingMistake(key="FORBIDDEN_FLAGS", message=problem)])
    return found


class MoreFlags:
    """A callable for FORBIDDEN_FLAGS that adds flags to the flags of another callable, sync or async."""

    def __init__(self, source: Callable[[], Any] | str, more: tuple[str, ...]) -> None:
        self.source = source
        self.more = more

    def __call__(self) -> Any:
        flags: Any = (import_string(self.source) if isinstance(self.source, str) else self.source)()
        return self._awaited(flags) if inspect.isawaitable(flags) else (*checked_flags(flags), *self.more)

    async def _awaited(self, flags: Awaitable[Any]) -> tuple[str, ...]:
        return (*checked_flags(await flags), *self.more)
