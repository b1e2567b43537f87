"""The names of the pages, and their order in the navigation and in the index of the admin."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Model
from django.utils.text import capfirst, format_lazy

from django_graphile_worker import models

PAGES: tuple[type[Model], ...] = (
    models.Overview,
    models.Job,
    models.JobQueue,
    models.PausedWork,
    models.LimitKey,
    models.Schedule,
    models.Worker,
    models.Event,
    models.ErrorGroup,
    models.PastAttempt,
)


def page_name(page: type[Model]) -> str:
    """Return the name of a page, which is its title and its name in every navigation."""
    return str(capfirst(str(page._meta.verbose_name_plural).strip()))


def _put_in_order(pages: Sequence[type[Model]]) -> None:
    """Put spaces, which no browser shows, before the names of pages: the admin sorts the models of an app by name.

    The names of the class Meta, which migrations compare, stay as they are.
    """
    for spaces, page in enumerate(reversed(pages)):
        name = capfirst(page._meta.verbose_name_plural)
        page._meta.verbose_name_plural = format_lazy("{}{}", " " * spaces, name)


_put_in_order(PAGES)
