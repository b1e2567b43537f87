"""Finds the schedules that a command line names, checks them, and records who changes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.core.management.base import CommandError, CommandParser
from django.db import DataError, IntegrityError

from django_graphile_worker import conf
from django_graphile_worker.crontab import CronItem
from django_graphile_worker.management.operator import lookups
from django_graphile_worker.management.operator.arguments import did_you_mean
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options
from django_graphile_worker.models import Schedule, changed_by
from django_graphile_worker.project_crontab import collect
from django_graphile_worker.routing import place_of
from django_graphile_worker.text import quoted, shown


def add_names(parser: CommandParser, *, is_several: bool) -> None:
    """Add the argument that names one or several schedules."""
    if is_several:
        parser.add_argument("names", nargs="+", metavar="NAME", help="The names of schedules.")
    else:
        parser.add_argument("name", metavar="NAME", help="The name of the schedule.")


def database_of(console: Console) -> str:
    """Return the alias of the database; raise CommandError for an installation that the model does not read."""
    place = place_of(**console.place)
    if place.settings.schema != conf.schema_of_models():
        raise CommandError(
            f"--installation: schedules are in the installation {conf.DEFAULT!r}; {place.installation!r} has another "
            f"schema."
        )
    return place.using


def find(console: Console, name: str) -> Schedule:
    """Return the schedule of this name; raise CommandError with a suggestion if there is none."""
    return find_all(console, [name])[0]


def find_all(console: Console, names: Sequence[str]) -> list[Schedule]:
    """Return the schedules of these names, each once; raise CommandError if one of them does not exist."""
    schedules = Schedule.objects.using(database_of(console))
    found = {schedule.name: schedule for schedule in schedules.filter(name__in=names)}
    for name in names:
        if name not in found:
            raise CommandError(f"There is no schedule {quoted(name)}.{_way_out(console, name)}")
    return [found[name] for name in dict.fromkeys(names)]


def refuse_from_code(schedule: Schedule) -> None:
    """Raise CommandError for a schedule that workers write: they would write it again."""
    if schedule.is_from_code:
        raise CommandError(of_code(schedule))


def of_code(schedule: Schedule) -> str:
    return (
        f"{quoted(schedule.name)} is @task(every=...) in the code: change it there. Here it can be paused, resumed "
        f"and run."
    )


def _way_out(console: Console, name: str) -> str:
    if name in {item.name for item in code_items(console)}:
        return " A recurring task of the code has this name: graphile_worker crontab shows, pauses and resumes it."
    known = Schedule.objects.using(database_of(console)).values_list("name", flat=True)
    return did_you_mean(name, known) or " graphile_worker schedules lists the names."


def code_items(console: Console) -> Sequence[CronItem]:
    """Return the recurring tasks of the code."""
    place = place_of(**console.place)
    return collect(place.settings, with_tasks=place.installation == conf.DEFAULT)


def errors_in(schedule: Schedule) -> dict[str, list[str]]:
    """Return the messages of the model by field; none for a valid schedule."""
    try:
        schedule.validate_definition()
    except ValidationError as error:
        return {name: [str(text) for text in texts] for name, texts in error.message_dict.items()}
    return {}


def refuse_errors(schedule: Schedule) -> None:
    """Raise CommandError with every error in a schedule."""
    if errors := errors_in(schedule):
        raise CommandError(_lines(errors))


def _lines(errors: Mapping[str, Sequence[str]]) -> str:
    return "\n".join(
        shown(text if name == NON_FIELD_ERRORS else f"{name}: {text}")
        for name, texts in errors.items()
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
        raise CommandError(f"The database refuses the schedule: {first}") from error
