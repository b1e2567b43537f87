"""The settings of the project; PEER is the queue that runs its tasks."""

from __future__ import annotations

import os

from psycopg.conninfo import conninfo_to_dict

_parts = conninfo_to_dict(os.environ["DATABASE_URL"])
_APPS = {
    "ours": ["django_graphile_worker", "benchmarks.real_jobs.ours"],
    "procrastinate": ["procrastinate.contrib.django"],
    "django_tasks_db": ["django_tasks", "django_tasks_db"],
}

SECRET_KEY = "benchmark"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["benchmarks.real_jobs", *_APPS.get(os.environ.get("PEER", ""), [])]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _parts.get("dbname"),
        "USER": _parts.get("user") or "",
        "PASSWORD": _parts.get("password") or "",
        "HOST": _parts.get("host") or "",
        "PORT": str(_parts.get("port") or ""),
        # Persistent connections, which are best for every queue here.
        "CONN_MAX_AGE": None,
    }
}
PROCRASTINATE_IMPORT_PATHS = ["benchmarks.real_jobs.procrastinate"]
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
