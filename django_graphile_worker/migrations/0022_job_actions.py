from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """Actions of operators on jobs, and their undo."""

    dependencies = [("graphile_worker", "0021_fewer_writes")]

    operations = [RunSchemaFile(forwards="job_actions.sql", backwards="job_actions_drop.sql")]
