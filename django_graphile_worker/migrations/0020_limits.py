from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """How many jobs of a key may run at once, and how many may start in a time."""

    dependencies = [("graphile_worker", "0019_pauses")]

    operations = [RunSchemaFile(forwards="limits.sql", backwards="limits_drop.sql")]
