from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """Statistics of queues and workers, and samples of the backlog."""

    dependencies = [("graphile_worker", "0023_saved_views")]

    operations = [RunSchemaFile(forwards="chart_statistics.sql", backwards="chart_statistics_drop.sql")]
