"""The smallest project with a worker: one app with two tasks."""

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
