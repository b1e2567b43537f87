"""What frozen values have in common, written once."""

from __future__ import annotations

from dataclasses import Field, FrozenInstanceError, dataclass
from typing import Any, ClassVar, NoReturn, dataclass_transform


class _Fields:
    """A value's fields as ``dataclasses`` knows them, found out when one of its functions first asks."""

    def __get__(self, value: object, kind: type[Value]) -> dict[str, Field[Any]]:
        if kind is Value:
            raise AttributeError("A value without fields.")
        dataclass(frozen=True, init=False, repr=False, eq=False, match_args=False)(kind)
        return kind.__dataclass_fields__


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Value:
    """A frozen dataclass that takes keywords: for type checkers, ``dataclasses.replace()`` and its like.

    ``@dataclass`` writes a class's methods as text and has them compiled, whenever its module is loaded: half a
    millisecond to two for each. A worker's start loads a dozen.
    """

    # Found by __get__; whoever asks a class that was asked before finds a plain dictionary.
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]] = _Fields()  # type: ignore[assignment]
    _names: ClassVar[frozenset[str]] = frozenset()
    _required: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        cls._names = frozenset(cls.__annotations__)
        cls._required = frozenset(name for name in cls._names if name not in vars(cls))

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
    return tuple((name, getattr(value, name)) for name in type(value).__annotations__)


def _misfit(kind: str, missing: set[str] | frozenset[str], unknown: set[str]) -> str:
    complaints = [f"{kind}: expected {name!r}, got none." for name in sorted(missing)]
    return " ".join(complaints + [f"{kind}: expected a known field, got {name!r}." for name in sorted(unknown)])
