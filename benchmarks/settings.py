"""A Django project with no other app, so that only this package is measured."""

from __future__ import annotations

import os

from psycopg.conninfo import conninfo_to_dict

_parts = conninfo_to_dict(os.environ["DATABASE_URL"])

SECRET_KEY = "benchmark"
USE_TZ = True
INSTALLED_APPS = ["django_graphile_worker"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _parts.get("dbname"),
        "USER": _parts.get("user") or "",
        "PASSWORD": _parts.get("password") or "",
        "HOST": _parts.get("host") or "",
        "PORT": str(_parts.get("port") or ""),
    }
}
