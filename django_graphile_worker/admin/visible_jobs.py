"""Restricts pages to the jobs that a user may see, which ``JobAdmin.get_queryset`` returns."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db.models import QuerySet

from django_graphile_worker.sql.inspection.job_list import Subquery

NO_IDS = Subquery(text="select null::bigint where false", parameters=())


def ids_subquery(queryset: QuerySet[Any], alias: str) -> Subquery | None:
    """Return a subquery of the ids in a queryset, or None when the queryset leaves no job out."""
    query = queryset.query
    is_whole = not (query.where.children or query.is_sliced or query.combinator or query.extra or query.distinct)
    if is_whole:
        return None
    if not query.is_sliced:
        queryset = queryset.order_by()
    try:
        text, parameters = queryset.using(alias).values("pk").query.get_compiler(using=alias).as_sql()
    except EmptyResultSet:
        return NO_IDS
    return Subquery(text=text, parameters=tuple(parameters))
