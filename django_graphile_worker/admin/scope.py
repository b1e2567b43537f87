"""Which jobs a user may see at all: what `get_queryset` leaves."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db.models import QuerySet

from django_graphile_worker.sql.inspection.criteria import Subquery

NOTHING = Subquery(text="select null::bigint where false", parameters=())


def restriction(queryset: QuerySet[Any], alias: str) -> Subquery | None:
    """The ids of a queryset as a subquery; None when it leaves nothing out."""
    query = queryset.query
    is_whole = not (query.where.children or query.is_sliced or query.combinator or query.extra or query.distinct)
    if is_whole:
        return None
    if not query.is_sliced:
        queryset = queryset.order_by()
    try:
        text, parameters = queryset.using(alias).values("pk").query.get_compiler(using=alias).as_sql()
    except EmptyResultSet:
        return NOTHING
    return Subquery(text=text, parameters=tuple(parameters))
