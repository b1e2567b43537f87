from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import BuildIndexes, RunSchemaFile


class Migration(migrations.Migration):
    """How workers claim jobs, and the index that finds queues with due jobs."""

    atomic = False

    dependencies = [("graphile_worker", "0009_indexes")]

    operations = [
        RunSchemaFile(forwards="claim_looks_v2.sql", backwards="claim_looks_v2_drop.sql"),
        RunSchemaFile(forwards="claim_jobs_v2.sql", backwards="claim_jobs_v2_drop.sql"),
        BuildIndexes("claim_looks_v2.sql"),
    ]
