from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """How finished jobs are deleted that nothing has changed since their claim: without a search."""

    dependencies = [("graphile_worker", "0015_progress")]

    operations = [RunSchemaFile(forwards="complete_in_place_v1.sql", backwards="complete_in_place_v1_drop.sql")]
