"""What frozen values have in common, written once."""

from __future__ import annotations

import threading
from dataclasses import Field, FrozenInstanceError, dataclass
from typing import Any, ClassVar, NoReturn, dataclass_transform


class _Fields:
    """In the place of a value's fields, as ``dataclasses`` knows them, until one of its functions asks."""

    # Reentrant, as a class is asked for its fields while those of its subclass are made.
    _making = threading.RLock()

    def __get__(self, value: object, kind: type[Frozen]) -> dict[str, Field[Any]]:
        with self._making:
            # Another thread may have been first.
            if vars(kind)["__dataclass_fields__"] is self:
                dataclass(frozen=True, init=False, repr=False, eq=False, match_args=False)(kind)
        return vars(kind)["__dataclass_fields__"]  # type: ignore[no-any-return]


_FIELDS: Any = _Fields()


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Frozen:
    """A frozen dataclass that takes keywords: for type checkers, ``dataclasses.replace()`` and its like.

    ``@dataclass`` writes a class's methods as text and has them compiled, whenever its module is loaded: half a
    millisecond to two for each. A worker's start loads a dozen.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    _names: ClassVar[frozenset[str]] = frozenset()
    _required: ClassVar[frozenset[str]] = frozenset()
    _in_order: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.__dataclass_fields__ = _FIELDS
        # Its parent's fields, and its own.
        own = cls.__annotations__
        cls._in_order = tuple(dict.fromkeys((*cls._in_order, *own)))
        cls._names = frozenset(cls._in_order)
        cls._required = (cls._required | own.keys()) - vars(cls).keys()

    def __init__(self, **values: Any) -> None:
        if not self._required <= values.keys() <= self._names:
            raise TypeError(_misfit(type(self).__name__, self._required - values.keys(), values.keys() - self._names))
        vars(self).update(values)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return _items(self) == _items(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(_items(self))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in _items(self))
        return f"{type(self).__qualname__}({shown})"


def _items(value: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((name, getattr(value, name)) for name in value._in_order)


def _misfit(kind: str, missing: set[str] | frozenset[str], unknown: set[str]) -> str:
    complaints = [f"{kind}: expected {name!r}, got none." for name in sorted(missing)]
    return " ".join(complaints + [f"{kind}: expected a known field, got {name!r}." for name in sorted(unknown)])
