"""The type of a database cursor. Modules import it for type checkers only: at run time it costs nothing."""

from __future__ import annotations

from typing import Any, Protocol

Row = tuple[Any, ...]


class Cursor(Protocol):
    """The methods that the cursors of Django and of psycopg have in common."""

    def execute(self, statement: Any, parameters: Any = None, /) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...

    @property
    def rowcount(self) -> int: ...
