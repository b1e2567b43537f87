"""Reads pages of the job list, in both directions. A page begins at the position of a job, not at an offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django_graphile_worker.admin.databases import Session
from django_graphile_worker.sql.inspection.job_search import search
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria
from django_graphile_worker.sql.inspection.job_search.orders import Order


@dataclass(frozen=True, slots=True)
class JobsPage:
    """The jobs on a page, and the positions at which the previous and the next page begin, if there are such pages."""

    ids: Sequence[int]
    before: str | None
    after: str | None
    # The search stopped after this many jobs without filling the page; None when it did not stop early.
    examined: int | None


def read_page(
    session: Session,
    criteria: Criteria,
    *,
    limit: int,
    after: str | None = None,
    before: str | None = None,
    order: Order | None = None,
) -> JobsPage:
    """Read the page after a position, or the page before it."""
    if before:
        page = _read_previous_page(session, criteria, limit, before, order)
        if page is not None:
            return page
    found = search.find(session.cursor, criteria, schema=session.schema, limit=limit, after=after, order=order)
    return JobsPage(found.ids, found.first_token if after else None, found.next_token, found.examined)


def _read_previous_page(
    session: Session, criteria: Criteria, limit: int, before: str, order: Order | None
) -> JobsPage | None:
    """Read the page before a position; None when that would be only a part of the first page."""
    cursor, schema = session
    found = search.find(cursor, criteria, schema=schema, limit=limit, after=before, is_backwards=True, order=order)
    if found.next_token is None:
        return None
    # When no job was found, the next page begins where this search began.
    return JobsPage(found.ids[::-1], found.next_token, found.first_token or before, found.examined)
