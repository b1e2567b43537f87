"""From text, or from items made in Python, to items that are known to be right."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field

from django_graphile_worker.crontab.errors import CrontabMistake, Notebook, Position, raise_for
from django_graphile_worker.crontab.items import CronItem
from django_graphile_worker.crontab.parser import PlacedItem, read_crontab, read_schedule
from django_graphile_worker.crontab.validation import checked_item
from django_graphile_worker.exceptions import InvalidTypeError


def parse_crontab(text: str, *, source: str = "crontab") -> tuple[CronItem, ...]:
    """The items of a crontab; CrontabError tells every mistake in it."""
    if not isinstance(text, str):
        raise InvalidTypeError(f"parse_crontab: expected crontab text, got {text!r}.")
    draft = Draft()
    draft.add_text(text, source)
    return draft.finish()


def parse_cron_items(items: Iterable[CronItem]) -> tuple[CronItem, ...]:
    """The same items with every default filled in; CrontabError tells every mistake in them."""
    draft = Draft()
    for number, item in enumerate(items, 1):
        draft.add_item(item, number)
    return draft.finish()


@dataclass(slots=True)
class Draft:
    """A crontab in the making, from any number of sources: nothing is final before ``finish``."""

    placed: list[PlacedItem] = field(default_factory=list)
    mistakes: list[CrontabMistake] = field(default_factory=list)

    def add_text(self, text: str, source: str) -> None:
        notebook = Notebook(source)
        self.placed += read_crontab(text, notebook)
        self.mistakes += notebook.mistakes

    def add_item(self, item: object, number: int, source: str = "CronItem") -> None:
        name = getattr(item, "task", None)
        notebook = Notebook(f"{source} {number} ({name})" if isinstance(name, str) else f"{source} {number}")
        if isinstance(item, CronItem):
            checked = checked_item(item, notebook)
            if checked is not None:
                self.placed.append(PlacedItem(checked, notebook.source, Position(), Position()))
        else:
            notebook.note("a CronItem or crontab text", repr(item))
        self.mistakes += notebook.mistakes

    def add_schedules(
        self,
        task: str,
        schedules: Iterable[str],
        source: str,
        adjust: Callable[[CronItem], CronItem] = lambda item: item,
    ) -> None:
        """The schedules beside one task; of several, each gets a name of its own."""
        lines = tuple(schedules)
        notebook = Notebook(source)
        for line in lines:
            placed = read_schedule(line, task, notebook, named_by_pattern=len(lines) > 1)
            if placed is not None:
                self.placed.append(placed._replace(item=adjust(placed.item)))
        self.mistakes += notebook.mistakes

    def copy(self) -> Draft:
        """For somebody who adds mistakes of their own."""
        return Draft(self.placed.copy(), self.mistakes.copy())

    def note(self, source: str, expected: str, text: str, at: Position | None = None) -> None:
        notebook = Notebook(source)
        notebook.note(expected, text, at)
        self.mistakes += notebook.mistakes

    def refuse_unknown_tasks(self, known: Container[str], names: Iterable[str]) -> None:
        for placed in self.placed:
            task = placed.item.task
            if task not in known:
                near = difflib.get_close_matches(task, list(names), n=1)
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                expected = f"the identifier of a registered task{hint}"
                self.note(placed.source, expected, task, placed.task_at)

    def finish(self) -> tuple[CronItem, ...]:
        self._refuse_duplicates()
        sources = list(dict.fromkeys(mistake.source for mistake in self.mistakes))
        raise_for(
            sorted(
                self.mistakes,
                key=lambda found: (sources.index(found.source), found.line or 0, found.column or 0),
            )
        )
        return tuple(placed.item for placed in self.placed)

    def _refuse_duplicates(self) -> None:
        first: dict[str, PlacedItem] = {}
        for placed in self.placed:
            earlier = first.setdefault(placed.item.name, placed)
            if earlier is not placed:
                line = f" line {earlier.name_at.line}" if earlier.name_at.line else ""
                expected = (
                    f"an identifier of its own ({earlier.source}{line} already has this one): "
                    "give it another, with ?id= or identifier="
                )
                self.note(placed.source, expected, placed.item.name, placed.name_at)
