"""The side of a queue: ``python -m benchmarks.real_jobs.client <peer> prepare``, or ``... load <work> <count>``.

It runs in the environment of the peers.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

import django
from django.core.management import call_command

ORDERS = 20_000
FILL_CUSTOMERS = """insert into real_jobs_customer (name, email)
select 'customer ' || n, n || '@example.com' from generate_series(1, 1000) as n"""
FILL_ORDERS = f"""insert into real_jobs_order (customer_id, state, note, total)
select 1 + n % 1000, 'new', '', n from generate_series(1, {ORDERS}) as n"""


def prepare(module: str) -> None:
    """Create and fill the tables of the shop, and create what the queue needs."""
    # Late import: Django must be set up first.
    from django.db import connection

    call_command("migrate", run_syncdb=True, verbosity=0)
    with connection.cursor() as cursor:
        for statement in (FILL_CUSTOMERS, FILL_ORDERS, "vacuum analyze"):
            cursor.execute(statement)
    tasks = import_module(module)
    if hasattr(tasks, "prepare"):
        tasks.prepare()


def main(peer: str, verb: str, *arguments: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.real_jobs.settings")
    django.setup()
    # Our worker finds its tasks in the module ``tasks`` of an app.
    module = f"benchmarks.real_jobs.{'ours.tasks' if peer == 'ours' else peer}"
    if verb == "prepare":
        prepare(module)
        return
    work, count = arguments
    import_module(module).load(work, int(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
