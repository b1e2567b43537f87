"""System checks: what ``manage.py check`` reports about settings, tasks and databases.

``configuration`` checks the setting ``GRAPHILE_WORKER``, ``tasks`` the registered tasks, their limits and the crontab,
``databases`` aliases, psycopg, routers and pools. ``schema`` checks the worker schema of each installation, only for
``manage.py check --database`` and ``migrate``: no other check opens a connection.

To add a check, write a function ``check_*(app_configs=None, **kwargs)`` that returns messages, each with the next free
id and a hint that says how to correct the error. Register it below, and describe the id in the reference of system
checks.
"""

from __future__ import annotations

from django.core.checks import Tags, register

from django_graphile_worker.checks.configuration import (
    check_alerts,
    check_dotted_paths,
    check_immediate_mode,
    check_metrics,
    check_observers,
    check_settings,
)
from django_graphile_worker.checks.databases import check_engine, check_pool, check_psycopg, check_routers
from django_graphile_worker.checks.schema import check_installation
from django_graphile_worker.checks.tasks import check_crontab, check_limits, check_tasks

TAG = "graphile_worker"


def register_checks() -> None:
    """Register the checks with Django. The app configuration calls this when the app is ready."""
    for check in (
        check_settings,
        check_dotted_paths,
        check_immediate_mode,
        check_alerts,
        check_metrics,
        check_observers,
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
