"""Which of Django's databases holds the queue, in which schema, with which settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from django.apps import apps
from django.db import connections, router
from django.utils.connection import ConnectionDoesNotExist

from django_graphile_worker import conf
from django_graphile_worker.exceptions import ConfigurationError, InvalidTypeError

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

APP_LABEL = "graphile_worker"


class Place(NamedTuple):
    """One worker schema in one database."""

    # The alias of the database.
    using: str
    # The alias of the installation in settings.GRAPHILE_WORKER.
    installation: str
    settings: conf.Settings

    @property
    def label(self) -> str:
        """What tells it from others: its installation where these are named, else its database."""
        return self.installation if conf.are_installations_named() else self.using


def queue_alias(using: str | None = None) -> str:
    """The database of "default": the one asked for, else a router's choice, else the setting DATABASE.

    Where installations are named, each has its DATABASE, and routers are not asked.
    """
    if using is not None:
        if not isinstance(using, str):
            raise InvalidTypeError(f"using: expected a database alias (str), got {using!r}.")
        return using
    database = conf.current().database
    return database if not router.routers or conf.are_installations_named() else routed_alias(database)


def routed_alias(database: str) -> str:
    """Ask the routers about a job that comes from the setting's database: that is where silence leaves it."""
    try:
        job = apps.get_model(APP_LABEL, "Job")()
    except LookupError:
        return database
    job._state.db = database
    return str(router.db_for_write(type(job), instance=job))


def place_of(using: str | None = None, installation: str | None = None) -> Place:
    """Where jobs are added, changed and looked for; raises ConfigurationError when there is no such place."""
    if installation is not None and not isinstance(installation, str):
        raise InvalidTypeError(
            f"installation: expected an alias of settings.{conf.SETTING} (str), got {installation!r}."
        )
    if not conf.are_installations_named():
        if installation is not None and installation != conf.DEFAULT:
            raise ConfigurationError(
                f"installation: expected {conf.DEFAULT!r}, got {installation!r}: settings.{conf.SETTING} names no "
                f'others. To name some, write {conf.SETTING} = {{"default": {{...}}, "another": {{...}}}}.'
            )
        return Place(queue_alias(using), conf.DEFAULT, conf.current())
    alias = _installation_in(queue_alias(using)) if installation is None and using is not None else installation
    place = _installed(conf.DEFAULT if alias is None else alias)
    if using is not None and using != place.using:
        raise ConfigurationError(
            f"using: expected {place.using!r}, the database of the installation {place.installation!r}, got {using!r}. "
            "Leave it out."
        )
    return place


def _installed(alias: str) -> Place:
    known = conf.configured().installations
    if alias not in known:
        there = ", ".join(map(repr, known))
        raise ConfigurationError(
            f"installation: expected an alias of settings.{conf.SETTING} ({there}), got {alias!r}."
        )
    return Place(known[alias].database, alias, known[alias])


def _installation_in(using: str) -> str:
    """The installation in a database, where there is no doubt about it."""
    there = [place.installation for place in places_in(using)]
    if len(there) == 1 or conf.DEFAULT in there:
        return conf.DEFAULT if conf.DEFAULT in there else there[0]
    if there:
        raise ConfigurationError(
            f"using: expected a database with one installation, got {using!r} with {', '.join(map(repr, there))}. "
            f"Say which with installation=..."
        )
    known = ", ".join(sorted({repr(settings.database) for settings in conf.configured().installations.values()}))
    raise ConfigurationError(
        f"using: expected a database that an installation of settings.{conf.SETTING} names ({known}), got {using!r}."
    )


def places_in(using: str) -> list[Place]:
    """The worker schemas that belong into this database."""
    if not conf.are_installations_named():
        return [Place(using, conf.DEFAULT, conf.current())]
    installations = conf.configured().installations
    return [Place(using, alias, settings) for alias, settings in installations.items() if settings.database == using]


def all_places() -> list[Place]:
    """Where this project adds jobs when it is not told otherwise: one place for each installation."""
    if not conf.are_installations_named():
        return [place_of()]
    return [_installed(alias) for alias in conf.configured().installations]


def places_to_serve(
    databases: Iterable[str] = (),
    installations: Iterable[str] = (),
    *,
    change: Callable[[conf.Settings], conf.Settings] = lambda settings: settings,
    arguments: tuple[str, str] = ("databases", "installations"),
) -> tuple[Place, ...]:
    """Where a worker works, each place once: what was asked for, else where jobs are added.

    ``change`` makes a worker's settings of those of its installation.
    """
    aliases = _valid_aliases(databases, arguments[0], "database")
    names = _valid_aliases(installations, arguments[1], "installation")
    places = [place_of(alias) for alias in aliases] + [place_of(installation=name) for name in names]
    for place in places or (place_of(),):
        queue_connection(place.using, argument=arguments[0])
    found = {(place.using, place.installation): place for place in places or (place_of(),)}
    return tuple(place._replace(settings=change(place.settings)) for place in found.values())


def _valid_aliases(aliases: Iterable[str], argument: str, kind: str) -> list[str]:
    if isinstance(aliases, str) or not all(isinstance(alias, str) for alias in aliases):
        raise InvalidTypeError(
            f"{argument}: expected a list of {kind} aliases, got {aliases!r}. A single one is a list too: ['default']."
        )
    return list(aliases)


def queue_connection(using: str | None = None, *, argument: str = "using") -> BaseDatabaseWrapper:
    """Django's connection to the queue's database, for the current thread."""
    alias = queue_alias(using)
    try:
        connection: BaseDatabaseWrapper = connections[alias]
    except ConnectionDoesNotExist:
        raise ConfigurationError(
            f"{argument}: expected an alias of settings.DATABASES ({', '.join(map(repr, connections))}), got {alias!r}."
        ) from None
    if connection.vendor != "postgresql":
        raise ConfigurationError(
            f"The queue lives in PostgreSQL: expected a PostgreSQL database, got {connection.vendor} "
            f'for the alias {alias!r}. Name another with {argument}=... or GRAPHILE_WORKER["DATABASE"].'
        )
    return connection
