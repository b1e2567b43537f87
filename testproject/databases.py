"""The PostgreSQL of the site: the server of DATABASE_URL, else the embedded server of this checkout."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

from testproject import embedded

PREFIX = "testproject_"
# The files that create the tables. The data of the demo is disposable, so a change of these files gives a new database.
SCHEMA_SOURCES = ("migrations/*.py", "sql/ddl/*.sql")

# The names of the parts of an address in libpq and in Django. All other parts are options of libpq.
DJANGO_NAMES = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}


def is_embedded() -> bool:
    """Return whether the embedded server is used, because DATABASE_URL is not set."""
    return not os.environ.get("DATABASE_URL")


def ensure_running() -> None:
    """Start the embedded PostgreSQL if it is used."""
    if is_embedded():
        embedded.ensure_running()


def ensure_site_database() -> None:
    """Start the server, create the database of the site, and drop its predecessors."""
    ensure_running()
    if is_embedded():
        embedded.keep_one_database(site_database(), PREFIX)


@cache
def site_database() -> str:
    """Return the name of the database of the site in the embedded PostgreSQL."""
    package = embedded.CHECKOUT / "django_graphile_worker"
    sources = sorted(path for pattern in SCHEMA_SOURCES for path in package.glob(pattern))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    return PREFIX + digest[:12]


def default() -> dict[str, Any]:
    """Return the entry of settings.DATABASES: the site's database on the embedded server, or that of DATABASE_URL."""
    return from_url(os.environ.get("DATABASE_URL") or embedded.conninfo(site_database()))


def from_url(url: str) -> dict[str, Any]:
    """Translate a libpq address into an entry of settings.DATABASES."""
    parts = {name: value for name, value in conninfo_to_dict(url).items() if value is not None}
    entry: dict[str, Any] = {"ENGINE": "django.db.backends.postgresql"}
    for libpq_name, django_name in DJANGO_NAMES.items():
        entry[django_name] = parts.pop(libpq_name, "")
    entry["OPTIONS"] = parts
    return entry


def to_url(entry: dict[str, Any]) -> str:
    """Translate an entry of settings.DATABASES into a libpq address, for other processes and other languages."""
    user, password = quote(entry["USER"], safe=""), quote(entry["PASSWORD"], safe="")
    login = f"{user}:{password}" if password else user
    query = {"host": entry["HOST"], "port": str(entry["PORT"]), **_plain(entry["OPTIONS"])}
    parameters = urlencode({name: value for name, value in query.items() if value}, safe="/")
    return f"postgresql://{login}@/{quote(entry['NAME'], safe='')}?{parameters}"


def _plain(options: dict[str, Any]) -> dict[str, str]:
    return {name: value for name, value in options.items() if isinstance(value, str)}
