"""System checks: what ``manage.py check`` says about settings, tasks and databases.

Every message has an id, and a hint that says the way out; the reference lists them all.
"""

from __future__ import annotations

from django.core.checks import Tags, register

from django_graphile_worker.checks.configuration import check_dotted_paths, check_settings
from django_graphile_worker.checks.databases import (
    check_engine,
    check_installation,
    check_pool,
    check_psycopg,
    check_routers,
)
from django_graphile_worker.checks.tasks import check_crontab, check_tasks

TAG = "graphile_worker"


def register_checks() -> None:
    """Called when the app is ready."""
    for check in (
        check_settings,
        check_dotted_paths,
        check_engine,
        check_psycopg,
        check_routers,
        check_pool,
        check_tasks,
        check_crontab,
    ):
        register(check, TAG)
    register(check_installation, TAG, Tags.database)
