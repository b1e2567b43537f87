"""``Frozen``: the base class of small values in modules that a process loads at its start."""

from __future__ import annotations

import threading
from dataclasses import Field, FrozenInstanceError, dataclass
from typing import Any, ClassVar, NoReturn, Self, dataclass_transform


class _Fields:
    """A descriptor for ``__dataclass_fields__`` that makes the class a dataclass when the fields are first read."""

    # Reentrant: making a subclass a dataclass reads the fields of its parent.
    _making = threading.RLock()

    def __get__(self, value: object, kind: type[Frozen]) -> dict[str, Field[Any]]:
        with self._making:
            # Another thread may have made it a dataclass in the meantime.
            if vars(kind)["__dataclass_fields__"] is self:
                dataclass(frozen=True, init=False, repr=False, eq=False, match_args=False)(kind)
        return vars(kind)["__dataclass_fields__"]  # type: ignore[no-any-return]


_FIELDS: Any = _Fields()


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Frozen:
    """A frozen, keyword-only value: a dataclass for type checkers and for the functions of ``dataclasses``.

    ``@dataclass`` generates the source of a class's methods and compiles it whenever its module is loaded, which takes
    0.5 to 2 ms for each class; the start of a worker loads a dozen. The methods of ``Frozen`` are inherited instead.

    Use it in modules that ``runworker`` or a web process loads at its start: ``conf``, ``exceptions``, ``jobs``,
    ``routing``, ``schedule``, ``signatures``, ``sql``, ``worker``. In other modules, such as ``admin``, ``crontab`` and
    ``management``, use ``@dataclass(frozen=True, slots=True)``: readers expect it, and its instances are smaller and
    take positional arguments. Creating an instance of either takes longer than creating a ``NamedTuple``, which is for
    rows of a statement and for tuples that callers unpack, or an instance of a plain class with ``__slots__``, which is
    for objects that are made for every job.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    _names: ClassVar[frozenset[str]] = frozenset()
    _required: ClassVar[frozenset[str]] = frozenset()
    _in_order: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.__dataclass_fields__ = _FIELDS
        # The fields of the parent class come first.
        own = cls.__annotations__
        cls._in_order = tuple(dict.fromkeys((*cls._in_order, *own)))
        cls._names = frozenset(cls._in_order)
        cls._required = (cls._required | own.keys()) - vars(cls).keys()

    def __init__(self, **values: Any) -> None:
        if not self._required <= values.keys() <= self._names:
            raise TypeError(
                _wrong_fields(type(self).__name__, self._required - values.keys(), values.keys() - self._names)
            )
        vars(self).update(values)

    @classmethod
    def of_checked_values(cls, values: dict[str, Any]) -> Self:
        """Return an instance that owns the dict, in a quarter of the constructor's time: the caller has every field."""
        instance = object.__new__(cls)
        object.__setattr__(instance, "__dict__", values)
        return instance

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


def _wrong_fields(kind: str, missing: set[str] | frozenset[str], unknown: set[str]) -> str:
    problems = [f"{kind}: expected {name!r}, got none." for name in sorted(missing)]
    return " ".join(problems + [f"{kind}: expected a known field, got {name!r}." for name in sorted(unknown)])
