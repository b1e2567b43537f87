"""Parsers of verbs that argparse asks for, each built when it is needed: a command line needs the parser of one verb.

To build the parsers of all verbs takes 20 ms, which every command would wait for.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandParser

if TYPE_CHECKING:
    SubParsersAction = argparse._SubParsersAction[CommandParser]
else:
    SubParsersAction = argparse._SubParsersAction


class LazyParsers(SubParsersAction):
    """An action for ``add_subparsers()``, which gets functions that call ``add_parser()``.

    ``choices`` and the help of all verbs show every verb, as if all parsers were built.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._built = self._name_parser_map
        self.choices = ParsersByName(self)  # type: ignore[assignment]
        self._builders: dict[str, Callable[[], object]] = {}

    def add_later(self, names: tuple[str, ...], build: Callable[[], object]) -> None:
        """Call ``build`` when the parser with these names is needed. It adds this parser, with ``add_parser()``."""
        self._builders |= dict.fromkeys(names, build)

    def names(self) -> list[str]:
        return list(self._builders)

    def parser(self, name: str) -> CommandParser:
        """Return the parser of a verb, which may have to be built first. Raise KeyError for an unknown name."""
        if name not in self._built:
            self._builders[name]()
        return self._built[name]

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        self.parser(values[0])
        super().__call__(parser, namespace, values, option_string)

    def _get_subactions(self) -> list[Any]:
        """Build all parsers for the help: argparse lists a verb after ``add_parser()`` was called."""
        for name in self.names():
            self.parser(name)
        return super()._get_subactions()


class ParsersByName(Mapping[str, CommandParser]):
    """The parsers by name and alias. ``call_command()`` looks at all of them for the options that exist."""

    def __init__(self, parsers: LazyParsers) -> None:
        self._parsers = parsers

    def __getitem__(self, name: str) -> CommandParser:
        return self._parsers.parser(name)

    def __contains__(self, name: object) -> bool:
        return name in self._parsers.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._parsers.names())

    def __len__(self) -> int:
        return len(self._parsers.names())
