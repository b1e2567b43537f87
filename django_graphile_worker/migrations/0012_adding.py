from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """The functions by which the Python API adds jobs without a key."""

    dependencies = [("graphile_worker", "0011_held_snapshots")]

    operations = [RunSchemaFile(forwards="insert_jobs.sql", backwards="insert_jobs_drop.sql")]
