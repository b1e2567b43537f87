"""The base class of all verbs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from django_graphile_worker.management.operator.console import Console

Options = dict[str, Any]


class Verb(ABC):
    """A verb of ``manage.py graphile_worker``: its texts, its arguments and its action."""

    name: ClassVar[str]
    aliases: ClassVar[Sequence[str]] = ()
    # One line for the overview; the description has the details.
    summary: ClassVar[str]
    description: ClassVar[str] = ""
    # The arguments of each example, without the name of the verb.
    examples: ClassVar[Sequence[str]] = ("",)
    # Whether the verb takes --database, --installation and --json. The verb that runs a worker has options of its own.
    has_usual_options: ClassVar[bool] = True

    def add_arguments(self, parser: CommandParser) -> None:  # noqa: B027 - a verb may take nothing
        """Add the arguments of this verb, without the usual options."""

    @abstractmethod
    def run(self, console: Console, options: Options) -> None:
        """Perform the action, and write the result to the console."""


class VerbGroup(Verb):
    """A verb with verbs of its own, such as ``schedules list``; without one of them, the first is meant."""

    verbs: ClassVar[Sequence[Verb]]
    # The option that holds the verb of the group.
    dest: ClassVar[str] = "verb_of_group"

    def run(self, console: Console, options: Options) -> None:
        chosen = options.get(self.dest) or self.verbs[0].name
        by_name = {name: verb for verb in self.verbs for name in (verb.name, *verb.aliases)}
        by_name[chosen].run(console, options)
