from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """What remains of jobs: results that tasks keep, the history of attempts, and the sessions that wait."""

    dependencies = [("graphile_worker", "0013_completions")]

    operations = [
        RunSchemaFile(forwards="results.sql", backwards="results_drop.sql"),
        RunSchemaFile(forwards="recorded_claims.sql", backwards="recorded_claims_drop.sql"),
        RunSchemaFile(forwards="history_partitions.sql", backwards="history_partitions_drop.sql"),
    ]
