from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """A cheaper claim of jobs in named queues."""

    dependencies = [("graphile_worker", "0032_fewer_notifications")]

    operations = [RunSchemaFile(forwards="claim_jobs_v6.sql", backwards="claim_jobs_v6_drop.sql")]
