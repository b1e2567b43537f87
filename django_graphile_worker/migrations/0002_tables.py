from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import CreateTables


class Migration(migrations.Migration):
    """The tables of this package."""

    # Backwards, one transaction waits for other sessions, and the next one drops the tables.
    atomic = False

    dependencies = [("graphile_worker", "0001_graphile_worker")]

    operations = [CreateTables()]
