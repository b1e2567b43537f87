"""System checks: what ``manage.py check`` reports about settings, tasks and databases.

Start reading with ``configuration`` (the setting ``GRAPHILE_WORKER``), ``tasks`` (registered tasks and crontab) and
``databases`` (aliases, psycopg, routers, pools: no connection is opened). ``databases.check_installation`` runs for
``manage.py check --database`` and ``migrate``, and only then loads ``schema``, ``rights``, ``indexes``, ``workers`` and
``schedules``: every process loads this package at its start, and most commands check no database. Only projects that
have limits load ``limits``.

The package may import ``models``, ``sql``, ``registry``, ``project_crontab``, ``routing``, ``conf`` and the layers
below them, but not ``worker``.

To add a check, write a function ``check_*(app_configs=None, **kwargs)`` that returns messages, each with the next free
id and a hint that says how to correct the mistake. Register it below, and describe the id in the reference of system
checks.
"""

from __future__ import annotations

from django.core.checks import Tags, register

from django_graphile_worker.checks.configuration import check_dotted_paths, check_immediate_mode, check_settings
from django_graphile_worker.checks.databases import (
    check_engine,
    check_installation,
    check_pool,
    check_psycopg,
    check_routers,
)
from django_graphile_worker.checks.tasks import check_crontab, check_limits, check_tasks

TAG = "graphile_worker"


def register_checks() -> None:
    """Register the checks with Django. The app configuration calls this when the app is ready."""
    for check in (
        check_settings,
        check_dotted_paths,
        check_immediate_mode,
        check_engine,
        check_psycopg,
        check_routers,
        check_pool,
        check_tasks,
        check_crontab,
        check_limits,
    ):
        register(check, TAG)
    register(check_installation, TAG, Tags.database)
