from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """How workers claim jobs, and complete a job in the transaction of its task, with less work."""

    dependencies = [("graphile_worker", "0020_limits")]

    operations = [
        RunSchemaFile(forwards="complete_claim_v1.sql", backwards="complete_claim_v1_drop.sql"),
        RunSchemaFile(forwards="claim_jobs_v4.sql", backwards="claim_jobs_v4_drop.sql"),
    ]
