from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import BuildIndexes, DropIndexes, RunSchemaFile


class Migration(migrations.Migration):
    """How workers claim jobs while a snapshot is held, and one index of the jobs of each queue instead of two."""

    atomic = False

    dependencies = [("graphile_worker", "0010_claims")]

    operations = [
        RunSchemaFile(forwards="queued_jobs_v3.sql", backwards="queued_jobs_v3_drop.sql"),
        RunSchemaFile(forwards="claim_jobs_v3.sql", backwards="claim_jobs_v3_drop.sql"),
        RunSchemaFile(forwards="end_claims_v3.sql", backwards="end_claims_v3_drop.sql"),
        BuildIndexes("queued_jobs_v3.sql"),
        DropIndexes("workers.sql", "end_claims_v2.sql", names=("jobs_by_queue_index", "jobs_due_by_queue_index")),
    ]
