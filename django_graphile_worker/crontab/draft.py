"""Collects text and items from several sources and checks them together: the result is checked items or one error."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace

from django_graphile_worker.crontab.errors import CrontabMistake, MistakeCollector, Position, raise_for
from django_graphile_worker.crontab.items import CronItem
from django_graphile_worker.crontab.parser import PlacedItem, read_crontab, read_schedule
from django_graphile_worker.crontab.validation import checked_item
from django_graphile_worker.exceptions import InvalidTypeError
from django_graphile_worker.suggestions import closest


def parse_crontab(text: str, *, source: str = "crontab") -> tuple[CronItem, ...]:
    """Return the items of a crontab; raise CrontabError with every mistake in it."""
    if not isinstance(text, str):
        raise InvalidTypeError(f"parse_crontab: expected crontab text, got {text!r}.")
    draft = Draft()
    draft.add_text(text, source)
    return draft.finish()


def parse_cron_items(items: Iterable[CronItem]) -> tuple[CronItem, ...]:
    """Return the items with every default filled in; raise CrontabError with every mistake in them."""
    draft = Draft()
    for number, item in enumerate(items, 1):
        draft.add_item(item, number)
    return draft.finish()


@dataclass(slots=True)
class Draft:
    """A crontab that is being collected from any number of sources; ``finish()`` returns its items or raises."""

    placed: list[PlacedItem] = field(default_factory=list)
    mistakes: list[CrontabMistake] = field(default_factory=list)

    def add_text(self, text: str, source: str) -> None:
        collector = MistakeCollector(source)
        self.placed += read_crontab(text, collector)
        self.mistakes += collector.mistakes

    def add_item(self, item: object, number: int, source: str = "CronItem") -> None:
        name = getattr(item, "task", None)
        collector = MistakeCollector(f"{source} {number} ({name})" if isinstance(name, str) else f"{source} {number}")
        if isinstance(item, CronItem):
            checked = checked_item(item, collector)
            if checked is not None:
                self.placed.append(PlacedItem(checked, collector.source, Position(), Position()))
        else:
            collector.add("a CronItem or crontab text", repr(item))
        self.mistakes += collector.mistakes

    def add_schedules(
        self,
        task: str,
        schedules: Iterable[str],
        source: str,
        adjust: Callable[[CronItem], CronItem] = lambda item: item,
    ) -> None:
        """Add the schedules of ``@task(cron=...)``. If a task has several, each is named after its pattern."""
        lines = tuple(schedules)
        collector = MistakeCollector(source)
        for line in lines:
            placed = read_schedule(line, task, collector, named_by_pattern=len(lines) > 1)
            if placed is not None:
                self.placed.append(replace(placed, item=adjust(placed.item)))
        self.mistakes += collector.mistakes

    def copy(self) -> Draft:
        """Return a copy, to which a caller can add mistakes of its own."""
        return Draft(self.placed.copy(), self.mistakes.copy())

    def add_mistake(self, source: str, expected: str, text: str, at: Position | None = None) -> None:
        collector = MistakeCollector(source)
        collector.add(expected, text, at)
        self.mistakes += collector.mistakes

    def refuse_unknown_tasks(self, known: Container[str], names: Iterable[str]) -> None:
        names = tuple(names)
        hints: dict[str, str] = {}
        for placed in self.placed:
            task = placed.item.task
            if task not in known:
                # Search once for each name: the search is slow, and a name may occur in thousands of lines.
                if task not in hints:
                    near = closest(task, names)
                    hints[task] = f" (did you mean {near!r}?)" if near else ""
                expected = f"the identifier of a registered task{hints[task]}"
                self.add_mistake(placed.source, expected, task, placed.task_at)

    def finish(self) -> tuple[CronItem, ...]:
        self._refuse_duplicates()
        sources = {source: index for index, source in enumerate(dict.fromkeys(found.source for found in self.mistakes))}
        raise_for(sorted(self.mistakes, key=lambda found: (sources[found.source], found.line or 0, found.column or 0)))
        return tuple(placed.item for placed in self.placed)

    def _refuse_duplicates(self) -> None:
        first: dict[str, PlacedItem] = {}
        for placed in self.placed:
            earlier = first.setdefault(placed.item.name, placed)
            if earlier is not placed:
                line = f" line {earlier.name_at.line}" if earlier.name_at.line else ""
                expected = (
                    f"an identifier of its own ({earlier.source}{line} already has this identifier): "
                    "choose another with ?id= or identifier="
                )
                self.add_mistake(placed.source, expected, placed.item.name, placed.name_at)
