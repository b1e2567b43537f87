"""Completes what a user types into the search box: names of conditions, and values with how many jobs have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.utils.translation import ngettext

from django_graphile_worker.admin import formatting
from django_graphile_worker.admin.databases import Session
from django_graphile_worker.admin.search.conditions import descriptions
from django_graphile_worker.admin.search.name_lookup import DatabaseNames
from django_graphile_worker.admin.search.search_query import LONGEST_QUERY, SearchTerm
from django_graphile_worker.registry import label_of
from django_graphile_worker.sql.inspection import known_names, lock_holders
from django_graphile_worker.sql.inspection.job_search.counts import Count, count_list, count_states
from django_graphile_worker.sql.inspection.job_search.criteria import STATES, Criteria, State, like_pattern

MOST = 8
# Of each kind of names, if no condition is typed.
MOST_OF_EACH = 4
# Counts of completions end here: "1,000+".
MOST_COUNTED = 1_000


@dataclass(frozen=True, slots=True)
class Completed:
    """A completion: the text that replaces what was typed, and a remark."""

    text: str
    remark: str = ""

    def as_dict(self) -> dict[str, str]:
        return {"text": self.text, "remark": self.remark}


class Completion:
    """The completions of one request. Every statement has a limit, and each count ends at a limit."""

    def __init__(self, session: Session, names: DatabaseNames, state_name: Callable[[State], str]) -> None:
        self.cursor, self.schema = session
        self.names, self.state_name = names, state_name
        self.most = MOST

    def complete(self, typed: str) -> list[Completed]:
        """Return the completions of the condition that is being typed."""
        typed = typed[:LONGEST_QUERY].replace("\x00", "").replace('"', "")
        name, separator, value = typed.partition(":")
        if separator:
            complete = getattr(self, f"_{name}", None) if name in COMPLETED else None
            return complete(value) if complete else []
        conditions = [Completed(f"{each}:", remark) for each, remark in descriptions() if each.startswith(typed)]
        if not typed:
            return conditions
        self.most = MOST_OF_EACH
        return [*conditions, *self._task(typed), *self._queue(typed), *self._flag(typed)]

    def _task(self, value: str) -> list[Completed]:
        return self._of_names("task", self._matching_tasks(value), lambda name: Criteria(tasks=(name,)))

    def _matching_tasks(self, value: str) -> list[str]:
        if self.names.visible is not None:
            return best(self.names.visible.tasks, value)
        pattern = like_pattern(value.lower(), is_part=True)
        found = known_names.matching_tasks(self.cursor, [pattern], schema=self.schema, folds_case=True)
        return best(found.names, value)

    def _queue(self, value: str) -> list[Completed]:
        if self.names.visible is not None:
            found = best(self.names.visible.queues, value)
        else:
            pattern = like_pattern(value.lower(), is_part=True)
            look = known_names.matching_queues(self.cursor, [pattern], schema=self.schema, folds_case=True)
            found = best(look.names, value)
        return self._of_names("queue", found, lambda name: Criteria(queues=(name,)))

    def _label(self, value: str) -> list[Completed]:
        labels: dict[str, list[str]] = {}
        for task in self.names.tasks:
            labels.setdefault(label_of(task), []).append(task)
        return self._of_names("label", best(labels, value), lambda name: Criteria(tasks=tuple(labels[name])))

    def _flag(self, value: str) -> list[Completed]:
        flags = self.names.visible.flags if self.names.visible is not None else self.names.flags
        return self._of_names("flag", best(flags, value), lambda name: Criteria(flags=(name,)))

    def _exception(self, value: str) -> list[Completed]:
        allowed = self.names.error_names.names
        visible = self.names.visible
        found = best((name for name in allowed if visible is None or name in visible.error_names), value)
        return self._of_names("exception", found, lambda name: Criteria(state=State.FAILING, error_names=(name,)))

    def _key(self, value: str) -> list[Completed]:
        if self.names.visible is not None:
            return [Completed(_text("key", name)) for name in best(self.names.visible.keys, value)]
        look = known_names.matching_keys(self.cursor, [like_pattern(value) + "%"], schema=self.schema)
        return [Completed(_text("key", name)) for name in sorted(look.names)[:MOST]]

    def _worker(self, value: str) -> list[Completed]:
        visible = self.names.visible
        if visible is not None:
            return self._of_names("worker", best(visible.workers, value), lambda name: Criteria(workers=(name,)))
        held = {holder.id: holder.jobs for holder in lock_holders.holders(self.cursor, schema=self.schema)}
        return [Completed(_text("worker", name), formatting.job_count(held[name])) for name in best(held, value)]

    def _state(self, value: str) -> list[Completed]:
        states = [state for state in STATES if state.value.startswith(value) or value in self.state_name(state).lower()]
        counts = (
            {} if self.names.within else count_states(self.cursor, Criteria(), schema=self.schema, most=MOST_COUNTED)
        )
        return [Completed(_text("state", state.value), jobs(counts.get(state))) for state in states]

    def _of_names(self, kind: str, found: list[str], criteria: Callable[[str], Criteria]) -> list[Completed]:
        return [
            Completed(_text(kind, name), jobs(self._count(kind, name, criteria(name)))) for name in found[: self.most]
        ]

    def _count(self, kind: str, name: str, criteria: Criteria) -> Count | None:
        visible = self.names.visible
        if visible is None:
            return count_list(self.cursor, criteria, schema=self.schema, most=MOST_COUNTED)
        counted: dict[str, Counter[str]] = {
            "task": visible.tasks, "queue": visible.queues, "flag": visible.flags, "worker": visible.workers,
            "exception": visible.error_names,
        }  # fmt: skip
        # Older jobs were not looked at.
        return Count(number=counted[kind][name], is_more=True) if kind in counted else None


COMPLETED = frozenset({"task", "queue", "label", "flag", "exception", "key", "worker", "state"})


def best(names: Iterable[str], value: str) -> list[str]:
    """Return the names that contain a value: first those that begin with it, then the shortest."""
    folded = value.lower().replace("*", "")
    found = [name for name in names if folded in name.lower()]
    return sorted(found, key=lambda name: (not name.lower().startswith(folded), len(name), name))[:MOST]


def jobs(count: Count | None) -> str:
    """Return how many jobs there are, for a remark."""
    if count is None or (count.is_more and not count.number):
        return ""
    text = formatting.count(count)
    return ngettext("%(number)s job", "%(number)s jobs", count.number) % {"number": text}


def _text(name: str, value: str) -> str:
    return str(SearchTerm(name, value))
