"""Schedules with problems: their last run failed, or times were missed."""

from __future__ import annotations

from dataclasses import dataclass

from django_graphile_worker.admin.databases import Session


@dataclass(frozen=True, slots=True)
class Problems:
    """The schedules and items whose last run failed, and the items that missed times in the last day."""

    failing: frozenset[int] = frozenset()
    failing_items: frozenset[str] = frozenset()
    missed_items: frozenset[str] = frozenset()


def read_problems(session: Session) -> Problems:
    return Problems()
