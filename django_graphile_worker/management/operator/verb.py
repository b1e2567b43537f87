"""The base class of all verbs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from django_graphile_worker.management.operator.console import Console

Options = dict[str, Any]


class Verb(ABC):
    """One action of an operator."""

    name: ClassVar[str]
    aliases: ClassVar[Sequence[str]] = ()
    # One line for the overview; the description has the details.
    summary: ClassVar[str]
    description: ClassVar[str] = ""
    # Arguments after the verb's name, one example each.
    examples: ClassVar[Sequence[str]] = ("",)
    # Does the verb take --database, --installation and --json? The verb that runs a worker has its own.
    has_usual_options: ClassVar[bool] = True

    def add_arguments(self, parser: CommandParser) -> None:  # noqa: B027 - a verb may take nothing
        """Add the arguments of this verb, without the usual options."""

    @abstractmethod
    def run(self, console: Console, options: Options) -> None:
        """Do it, and write the result to the console."""
