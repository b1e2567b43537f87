"""From page to page of a list, in both directions, by the places of jobs and not by their number."""

from __future__ import annotations

from typing import NamedTuple

from django_graphile_worker.admin.databases import Session
from django_graphile_worker.sql.inspection import search
from django_graphile_worker.sql.inspection.criteria import Criteria


class Leaf(NamedTuple):
    """The jobs on a page, and the places where its neighbours begin, if there are any."""

    ids: list[int]
    before: str | None
    after: str | None
    # Nothing more was found among this many jobs.
    examined: int | None


def turn(
    session: Session, criteria: Criteria, *, limit: int, after: str | None = None, before: str | None = None
) -> Leaf:
    """The page after a place, or the one before it."""
    if before:
        leaf = _turn_back(session, criteria, limit, before)
        if leaf is not None:
            return leaf
    found = search.find(session.cursor, criteria, schema=session.schema, limit=limit, after=after)
    return Leaf(found.ids, found.first_token if after else None, found.next_token, found.examined)


def _turn_back(session: Session, criteria: Criteria, limit: int, before: str) -> Leaf | None:
    """The page before a place; None when that would be only part of the first one."""
    found = search.find(session.cursor, criteria, schema=session.schema, limit=limit, after=before, is_backwards=True)
    if found.next_token is None:
        return None
    # Without a job the place where the looking began is all there is to go on from.
    return Leaf(found.ids[::-1], found.next_token, found.first_token or before, found.examined)
