"""Finds the database, the schema and the settings of a queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.apps import apps
from django.db import connections, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionDoesNotExist

from django_graphile_worker import conf
from django_graphile_worker.exceptions import ConfigurationError, InvalidTypeError

APP_LABEL = "graphile_worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A worker schema in a database."""

    # The alias of the database.
    using: str
    # The alias of the installation in settings.GRAPHILE_WORKER.
    installation: str
    settings: conf.Settings

    @property
    def label(self) -> str:
        """The name of the place: its installation if the project names its installations, else its database."""
        return self.installation if conf.are_installations_named() else self.using


def queue_alias(using: str | None = None) -> str:
    """Return the database of "default": the given one, else a router's choice, else the setting DATABASE.

    In a project with named installations, the setting DATABASE of "default" decides, and routers do not.
    """
    if using is not None:
        if not isinstance(using, str):
            raise InvalidTypeError(f"using: expected a database alias (str), got {using!r}.")
        return using
    database = conf.current().database
    return database if not router.routers or conf.are_installations_named() else routed_alias(database)


def routed_alias(database: str) -> str:
    """Return the routers' choice for a job that is in ``database``, which Django returns if no router decides."""
    try:
        job = apps.get_model(APP_LABEL, "Job")()
    except LookupError:
        return database
    job._state.db = database
    return str(router.db_for_write(type(job), instance=job))


def place_of(using: str | None = None, installation: str | None = None) -> Place:
    """Return the place where jobs are added, changed and read; raise ConfigurationError if there is none."""
    if installation is not None and not isinstance(installation, str):
        raise InvalidTypeError(
            f"installation: expected an alias of settings.{conf.SETTING} (str), got {installation!r}."
        )
    if not conf.are_installations_named():
        if installation is not None and installation != conf.DEFAULT:
            raise ConfigurationError(
                f"installation: there is no {installation!r}: settings.{conf.SETTING} names no installations. "
                f'To name them, write {conf.SETTING} = {{"default": {{...}}, "another": {{...}}}}.'
            )
        return Place(using=queue_alias(using), installation=conf.DEFAULT, settings=conf.current())
    alias = _installation_in(queue_alias(using)) if installation is None and using is not None else installation
    place = _installed(conf.DEFAULT if alias is None else alias)
    if using is not None and using != place.using:
        raise ConfigurationError(
            f"using: the installation {place.installation!r} is in the database {place.using!r}, not in {using!r}. "
            "Omit it."
        )
    return place


def _installed(alias: str) -> Place:
    known = conf.configured().installations
    if alias not in known:
        there = ", ".join(map(repr, known))
        raise ConfigurationError(
            f"installation: expected an alias of settings.{conf.SETTING} ({there}), got {alias!r}."
        )
    return Place(using=known[alias].database, installation=alias, settings=known[alias])


def _installation_in(using: str) -> str:
    """Return the installation in a database: the only one there, or "default"; raise if neither exists."""
    there = [place.installation for place in places_in(using)]
    if len(there) == 1 or conf.DEFAULT in there:
        return conf.DEFAULT if conf.DEFAULT in there else there[0]
    if there:
        raise ConfigurationError(
            f"using: the database {using!r} has several installations ({', '.join(map(repr, there))}). "
            "Choose one with installation=..."
        )
    known = ", ".join(sorted({repr(settings.database) for settings in conf.configured().installations.values()}))
    raise ConfigurationError(
        f"using: no installation of settings.{conf.SETTING} is in the database {using!r}. There are: {known}."
    )


def places_in(using: str) -> list[Place]:
    """Return the places in this database: each is an installation with its worker schema."""
    if not conf.are_installations_named():
        return [Place(using=using, installation=conf.DEFAULT, settings=conf.current())]
    return [
        Place(using=using, installation=alias, settings=settings)
        for alias, settings in conf.configured().installations.items()
        if settings.database == using
    ]


def all_places() -> list[Place]:
    """Return the places where this project adds jobs by default: one for each installation."""
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
    """Return the places that a worker serves, each once: the given places, else the place where jobs are added.

    ``change`` turns the settings of an installation into the settings of its worker.
    """
    aliases = _valid_aliases(databases, arguments[0], "database")
    names = _valid_aliases(installations, arguments[1], "installation")
    places = [place_of(alias) for alias in aliases] + [place_of(installation=name) for name in names]
    for place in places or (place_of(),):
        queue_connection(place.using, argument=arguments[0])
    found = {(place.using, place.installation): place for place in places or (place_of(),)}
    return tuple(
        Place(using=place.using, installation=place.installation, settings=change(place.settings))
        for place in found.values()
    )


def _valid_aliases(aliases: Iterable[str], argument: str, kind: str) -> list[str]:
    if isinstance(aliases, str) or not all(isinstance(alias, str) for alias in aliases):
        raise InvalidTypeError(
            f"{argument}: expected a list of {kind} aliases, got {aliases!r}. "
            "Write a single alias as a list, too: ['default']."
        )
    return list(aliases)


def queue_connection(using: str | None = None, *, argument: str = "using") -> BaseDatabaseWrapper:
    """Return Django's connection to the queue's database, for the current thread."""
    alias = queue_alias(using)
    try:
        connection: BaseDatabaseWrapper = connections[alias]
    except ConnectionDoesNotExist:
        raise ConfigurationError(
            f"{argument}: expected an alias of settings.DATABASES ({', '.join(map(repr, connections))}), got {alias!r}."
        ) from None
    if connection.vendor != "postgresql":
        raise ConfigurationError(
            f"The queue needs PostgreSQL, and the database {alias!r} is {connection.vendor}. "
            f'Choose another database with {argument}=... or GRAPHILE_WORKER["DATABASE"].'
        )
    return connection
