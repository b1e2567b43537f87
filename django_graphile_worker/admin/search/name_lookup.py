"""Finds the names of tasks, queues, keys, flags, errors and workers that the words of a search mean."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from django_graphile_worker.admin.databases import Session
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.registry import label_of
from django_graphile_worker.sql.inspection import known_names
from django_graphile_worker.sql.inspection.job_search.criteria import Subquery, like_pattern
from django_graphile_worker.sql.inspection.known_names import Names, VisibleNames, visible_names

NO_LOOK = Names((), True)


@dataclass(frozen=True, slots=True)
class WordMatches:
    """The names that have a word as a part."""

    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tasks or self.queues or self.keys or self.flags)


class NameLookup:
    """The names of no database: nothing but whole names is found."""

    def __init__(self, *, sees_payloads: bool = True) -> None:
        self.sees_payloads = sees_payloads

    def match(self, kind: str, patterns: Sequence[str]) -> Names:
        """Return the tasks, queues or keys that match one of the texts for LIKE."""
        return NO_LOOK

    def word(self, word: str) -> WordMatches:
        """Return the names that have the word as a part, or that match it if it has wildcards."""
        return WordMatches()

    def tasks_with_labels(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ()

    def workers(self, values: Sequence[str]) -> list[str]:
        """Return the ids of registered workers whose hosts match one of the values."""
        return []

    def exceptions(self, values: Sequence[str]) -> Names:
        """Return the names of errors whose last parts are one of the values, or that match its wildcards."""
        return NO_LOOK


class DatabaseNames(NameLookup):
    """The names in a database. For a user that may not see all jobs, words mean the names of visible jobs only."""

    def __init__(self, session: Session, *, sees_payloads: bool, within: Subquery | None = None) -> None:
        super().__init__(sees_payloads=sees_payloads)
        self.cursor, self.schema = session
        self.within = within

    def match(self, kind: str, patterns: Sequence[str]) -> Names:
        look = {
            "task": known_names.matching_tasks,
            "queue": known_names.matching_queues,
            "key": known_names.matching_keys,
        }[kind]
        return look(self.cursor, patterns, schema=self.schema)

    def word(self, word: str) -> WordMatches:
        pattern = like_pattern(word.lower(), is_part="*" not in word)
        if self.visible is not None:
            return _words_of_visible(self.visible, word)
        options = {"schema": self.schema, "folds_case": True}
        return WordMatches(
            tasks=known_names.matching_tasks(self.cursor, [pattern], **options).names,  # type: ignore[arg-type]
            queues=known_names.matching_queues(self.cursor, [pattern], **options).names,  # type: ignore[arg-type]
            keys=known_names.matching_keys(self.cursor, [pattern], **options).names,  # type: ignore[arg-type]
            flags=tuple(_matching(self.flags, word)),
        )

    @cached_property
    def visible(self) -> VisibleNames | None:
        return None if self.within is None else visible_names(self.cursor, self.within, schema=self.schema)

    @cached_property
    def flags(self) -> list[str]:
        return known_names.known_flags(self.cursor, schema=self.schema)

    @cached_property
    def tasks(self) -> list[str]:
        """The tasks that a user may know of, up to a limit."""
        if self.visible is not None:
            return sorted(self.visible.tasks)
        return known_names.known_tasks(self.cursor, schema=self.schema)

    @cached_property
    def queues(self) -> list[str]:
        """Some of the queues that a user may know of."""
        return sorted(self.visible.queues) if self.visible else known_names.some_queues(self.cursor, schema=self.schema)

    def tasks_with_labels(self, labels: Sequence[str]) -> tuple[str, ...]:
        tasks = known_names.known_tasks(self.cursor, schema=self.schema)
        return tuple(task for task in tasks if any(_fits(label_of(task), label) for label in labels))

    def workers(self, values: Sequence[str]) -> list[str]:
        registered = known_names.registered_workers(self.cursor, schema=self.schema)
        return [worker for worker, host in registered if host and any(_fits(host, value) for value in values)]

    @cached_property
    def error_names(self) -> Names:
        """The names of errors that the user may see: a name with a hidden value is left out."""
        look = known_names.known_error_names(self.cursor, schema=self.schema)
        if self.sees_payloads:
            return look
        return Names(tuple(name for name in look.names if redact_text(name) == name), look.is_complete)

    def exceptions(self, values: Sequence[str]) -> Names:
        names, is_complete = self.error_names
        found = (name for name in names if any(_is_of_error(name, value) for value in values))
        return Names(tuple(found), is_complete)


def _words_of_visible(visible: VisibleNames, word: str) -> WordMatches:
    return WordMatches(
        tasks=tuple(_matching(visible.tasks, word)),
        queues=tuple(_matching(visible.queues, word)),
        keys=tuple(_matching(visible.keys, word)),
        flags=tuple(_matching(visible.flags, word)),
    )


def _matching(found: Iterable[str], word: str) -> list[str]:
    """Return the names that have a word as a part, or match its wildcards, whatever the case."""
    pattern = word.lower() if "*" in word else f"*{word.lower()}*"
    return [name for name in found if _fits(name.lower(), pattern)]


def _is_of_error(name: str, value: str) -> bool:
    return _fits(name, value) if "*" in value else name.endswith(f".{value}")


def _fits(name: str, pattern: str) -> bool:
    """Return whether a name matches a pattern, in which only the star has a meaning."""
    return name == pattern or fnmatch.fnmatchcase(name, re.sub(r"([\[?])", r"[\1]", pattern))
