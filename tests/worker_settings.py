"""Settings of the workers that the fault tests start. Environment variables change them for a single worker."""

from __future__ import annotations

import json
import multiprocessing
import os
from typing import Any

from django_graphile_worker.logs import console
from testproject import databases

if "FAULT_BROKEN_CHILDREN" in os.environ and multiprocessing.parent_process() is not None:
    raise RuntimeError("a child that cannot start")

if "FAULT_LOG_PAUSE" in os.environ:
    console.PAUSE = float(os.environ["FAULT_LOG_PAUSE"])

SECRET_KEY = "tests-only"
USE_TZ = True
TIME_ZONE = "UTC"
INSTALLED_APPS = ["django_graphile_worker", "tests.worker_app"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

DATABASES: dict[str, dict[str, Any]] = {
    "default": databases.default() | json.loads(os.environ.get("FAULT_DATABASE_OPTIONS", "{}"))
}
if "FAULT_OTHER_DATABASE_URL" in os.environ:
    DATABASES["other"] = databases.from_url(os.environ["FAULT_OTHER_DATABASE_URL"])

if "FAULT_MIGRATIONS" in os.environ:
    MIGRATION_MODULES = {"graphile_worker": os.environ["FAULT_MIGRATIONS"]}

# Short leases, so that a test does not wait a minute until a worker is declared dead. They are not shorter, because
# on a busy machine a thread may not run for seconds, and its worker must not be declared dead then.
GRAPHILE_WORKER: dict[str, Any] = {
    "SCHEMA": os.environ.get("GRAPHILE_WORKER_SCHEMA", "graphile_worker"),
    "HEARTBEAT_INTERVAL": 1.0,
    "WORKER_TIMEOUT": 6.0,
    "GRACE_PERIOD": 20.0,
    **json.loads(os.environ.get("FAULT_WORKER_SETTINGS", "{}")),
}

# Installations beside "default". The settings of each override the settings above.
if "FAULT_INSTALLATIONS" in os.environ:
    GRAPHILE_WORKER = {"default": GRAPHILE_WORKER} | {
        alias: GRAPHILE_WORKER | entry for alias, entry in json.loads(os.environ["FAULT_INSTALLATIONS"]).items()
    }
