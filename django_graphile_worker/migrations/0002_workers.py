from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """What the worker needs beside the original schema."""

    dependencies = [("graphile_worker", "0001_worker_schema")]

    operations = [
        RunSchemaFile(forwards="workers.sql", backwards="workers_drop.sql"),
        RunSchemaFile(forwards="claims.sql", backwards="claims_drop.sql"),
    ]
