"""Asks the model whether a schedule is valid, and saves it with the name of the person who changed it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.core.management.base import CommandError
from django.db import DataError, IntegrityError

from django_graphile_worker.management.operator import lookups
from django_graphile_worker.management.operator.verb import Options
from django_graphile_worker.models import Schedule, changed_by
from django_graphile_worker.text import shown


def mistakes_in(schedule: Schedule) -> dict[str, list[str]]:
    """Return the messages of the model by field; none for a valid schedule."""
    try:
        schedule.refuse_mistakes()
    except ValidationError as error:
        return {name: [str(text) for text in texts] for name, texts in error.message_dict.items()}
    return {}


def refuse_mistakes(schedule: Schedule) -> None:
    """Raise CommandError with every mistake of a schedule."""
    if mistakes := mistakes_in(schedule):
        raise CommandError(_lines(mistakes))


def _lines(mistakes: Mapping[str, Sequence[str]]) -> str:
    return "\n".join(
        shown(text if name == NON_FIELD_ERRORS else f"{name}: {text}")
        for name, texts in mistakes.items()
        for text in texts
    )


@contextmanager
def changing(using: str, options: Options) -> Iterator[None]:
    """Open a transaction whose changes are recorded under the name of the person; report what the database refuses."""
    try:
        with changed_by(lookups.name_of_user(options), using=using):
            yield
    except ValidationError as error:
        raise CommandError(_lines(error.message_dict)) from error
    except (DataError, IntegrityError) as error:
        first = str(error).partition("\n")[0]
        raise CommandError(f"Expected a schedule that the database accepts, got an error: {first}") from error
