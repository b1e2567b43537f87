from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """How several workers claim jobs at the same time without trying each other's rows."""

    dependencies = [("graphile_worker", "0029_cheaper_history")]

    operations = [RunSchemaFile(forwards="claim_jobs_v5.sql", backwards="claim_jobs_v5_drop.sql")]
