"""The migrations of the package, and one of a release that does not exist yet, for the setting MIGRATION_MODULES."""

from __future__ import annotations

from django_graphile_worker import migrations

__path__ = [*__path__, *migrations.__path__]
