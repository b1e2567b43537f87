"""Reads and changes saved views. They are in the database that jobs are added to, whichever database a page shows."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_graphile_worker.models import SavedView
from django_graphile_worker.routing import queue_alias

# How many views a user can save.
MOST_VIEWS = 50
# How many views a page shows: those of the user, and shared views of others.
MOST_SHOWN = 200
# The parameters of the address that a view consists of.
PARAMETERS = ("q", "state", "sort", "columns", "size", "database")
LONGEST_PARAMETER = 2_000
LONGEST_NAME = 100


class SavedViewError(ValueError):
    """A view cannot be saved; the message says why."""


def owner_of(request: HttpRequest) -> str:
    """Return the text by which views name the user: the users may be in another database."""
    return str(request.user.pk)


def visible_views(request: HttpRequest) -> list[SavedView]:
    """Return the views of the user and those that other users share, by name, with one query."""
    views = _views().filter(Q(owner=owner_of(request)) | Q(is_shared=True)).order_by("name", "id")
    return list(views[:MOST_SHOWN])


def parameters_from(source: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of an address that a view stores. PostgreSQL cannot store NUL."""
    given = {name: source.get(name, "").replace("\x00", "")[:LONGEST_PARAMETER] for name in PARAMETERS}
    return {name: value for name, value in given.items() if value}


def save_view(request: HttpRequest, name: str, parameters: dict[str, str], *, is_shared: bool) -> SavedView:
    """Save a view; a view of the user with this name is replaced."""
    own = _views().filter(owner=owner_of(request))
    if not own.filter(name=name).exists() and own.count() >= MOST_VIEWS:
        message = ngettext(
            "Expected at most %(most)s saved view, got one more. Delete one first.",
            "Expected at most %(most)s saved views, got one more. Delete one first.",
            MOST_VIEWS,
        )
        raise SavedViewError(message % {"most": MOST_VIEWS})
    values = {"parameters": parameters, "is_shared": is_shared, "owner_name": request.user.get_username()}
    return _views().update_or_create(owner=owner_of(request), name=name, defaults=values)[0]


def rename_view(view: SavedView, name: str) -> None:
    """Rename a view. Its owner must not have another view with the name."""
    if not name:
        raise SavedViewError(_("Expected a name of 1 to %(most)s characters.") % {"most": LONGEST_NAME})
    try:
        with transaction.atomic(using=queue_alias()):
            _views().filter(pk=view.pk).update(name=name)
    except IntegrityError:
        message = _("Expected a name that no other view has, got “%(name)s”. Delete or rename that view first.")
        raise SavedViewError(message % {"name": name}) from None


def share_view(view: SavedView, *, is_shared: bool) -> None:
    _views().filter(pk=view.pk).update(is_shared=is_shared)


def delete_view(view: SavedView) -> None:
    _views().filter(pk=view.pk).delete()


def _views() -> QuerySet[SavedView]:
    return SavedView.objects.using(queue_alias())
