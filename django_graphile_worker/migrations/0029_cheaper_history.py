from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """How workers write the history with less work: no B-tree of its times."""

    dependencies = [("graphile_worker", "0028_permission_names")]

    operations = [RunSchemaFile(forwards="history_times.sql", backwards="history_times_drop.sql")]
