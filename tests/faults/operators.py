"""What operators do while workers run: they pause work, and resume it."""

from __future__ import annotations

from datetime import timedelta

import psycopg

from django_graphile_worker.sql import control
from django_graphile_worker.sql.control import Pause, PauseKind
from tests.faults.world import World


def pause(world: World, kind: PauseKind, name: str, until: timedelta | None = None) -> Pause:
    with psycopg.connect(world.url, autocommit=True) as connection, connection.cursor() as cursor:
        paused, was_paused = control.pause(
            cursor, kind, name, schema=world.schema, until=until, reason="provider", by="maria"
        )
    assert not was_paused
    return paused


def resume(world: World, kind: PauseKind, name: str) -> None:
    with psycopg.connect(world.url, autocommit=True) as connection, connection.cursor() as cursor:
        assert control.resume(cursor, kind, name, schema=world.schema) is not None
