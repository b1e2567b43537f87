"""Who changes a schedule, and the time of a change in a test: settings of the session that the triggers read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections, transaction

from django_graphile_worker import simulation
from django_graphile_worker.routing import queue_alias
from django_graphile_worker.sql.schedules import changes


@contextmanager
def changed_by(by: str, *, using: str | None = None) -> Iterator[None]:
    """Note who changes schedules in the block: ``with changed_by("maria"): schedule.save()``.

    The block is a transaction. Without it, or with an empty name, the change is that of a program.
    """
    alias = queue_alias(using)
    with transaction.atomic(using=alias):
        with connections[alias].cursor() as cursor:
            before = changes.set_changed_by(cursor, by)
        yield
        with connections[alias].cursor() as cursor:
            changes.set_changed_by(cursor, before)


@contextmanager
def at_simulated_time(alias: str) -> Iterator[None]:
    """Have the changes of the block made at the time of the clock of a test; without a clock, do nothing."""
    if simulation.now is None:
        yield
        return
    with connections[alias].cursor() as cursor:
        changes.set_now(cursor, simulation.now())
    simulation.has_new_schedules = True
    try:
        yield
    finally:
        # In a transaction that failed, the setting ends with it.
        if not connections[alias].needs_rollback:
            with connections[alias].cursor() as cursor:
                changes.set_now(cursor, None)
