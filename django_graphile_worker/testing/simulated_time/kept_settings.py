"""Settings that firing changes until the end of the transaction, which is that of the test."""

from __future__ import annotations

from django_graphile_worker.sql.inspection.limits import change_settings
from django_graphile_worker.testing.connections import CallerDatabase


class KeptSettings:
    """Notes a setting before it is changed, and restores it. In autocommit mode it ends with each statement."""

    def __init__(self) -> None:
        self._settings: dict[str, str] | None = None

    def keep(self, database: CallerDatabase) -> None:
        if self._settings is None and database.is_in_transaction:
            with database.cursor() as cursor:
                self._settings = change_settings(cursor, {"lock_timeout": "0"})

    def restore(self, database: CallerDatabase) -> None:
        settings, self._settings = self._settings, None
        if settings is not None:
            with database.cursor() as cursor:
                change_settings(cursor, settings)
