from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """How one job is added outside of a transaction: no error follows its commit."""

    dependencies = [("graphile_worker", "0015_progress")]

    operations = [RunSchemaFile(forwards="insert_job_alone.sql", backwards="insert_job_alone_drop.sql")]
