"""The links to saved views, above the list of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest

from django_graphile_worker.admin.saved_views.saved_views import owner_of, parameters_from
from django_graphile_worker.models import SavedView


@dataclass(frozen=True, slots=True)
class SavedViewLink:
    """A link to a saved view."""

    id: int
    name: str
    url: str
    search: str
    state: str
    # The name of the user that shares the view; "" for a view of the user.
    shared_by: str
    is_shared: bool
    is_own: bool
    is_current: bool


def saved_view_links(request: HttpRequest, views: Sequence[SavedView], list_url: str) -> list[SavedViewLink]:
    """Return the links to the views. `list_url` is the address of the list of jobs."""
    current = parameters_from(request.GET)
    return [_link(request, view, list_url.partition("?")[0], current) for view in views]


def _link(request: HttpRequest, view: SavedView, address: str, current: dict[str, str]) -> SavedViewLink:
    parameters = parameters_from(_texts(view.parameters))
    is_own = view.owner == owner_of(request)
    return SavedViewLink(
        id=view.pk,
        name=view.name,
        url=f"{address}?{urlencode(parameters)}" if parameters else address,
        search=parameters.get("q", ""),
        state=parameters.get("state", ""),
        shared_by="" if is_own else view.owner_name,
        is_shared=view.is_shared,
        is_own=is_own,
        is_current=parameters == current,
    )


def _texts(parameters: Any) -> dict[str, str]:
    """Return the parameters of a row, which any program can write."""
    given = parameters.items() if isinstance(parameters, dict) else ()
    return {name: value for name, value in given if isinstance(value, str)}
