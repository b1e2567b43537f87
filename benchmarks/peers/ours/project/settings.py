"""The smallest project with a worker: one app with two tasks. Most benchmarks start its worker."""

from __future__ import annotations

import os

SECRET_KEY = "benchmark"
USE_TZ = True
INSTALLED_APPS = ["django_graphile_worker", "shop"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["PGDATABASE"],
        "USER": os.environ["PGUSER"],
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "HOST": os.environ.get("PGHOST", ""),
        "PORT": os.environ.get("PGPORT", ""),
    }
}
if "SECOND_DATABASE" in os.environ:
    DATABASES["second"] = DATABASES["default"] | {"NAME": os.environ["SECOND_DATABASE"]}
# Settings whose values are seconds, from variables of the same names.
_SECONDS = ("HEARTBEAT_INTERVAL", "KEEP_RESULTS", "HISTORY")
GRAPHILE_WORKER = {name: float(os.environ[name]) for name in _SECONDS if name in os.environ}
