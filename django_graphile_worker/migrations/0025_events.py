from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """Events that operators read later."""

    dependencies = [("graphile_worker", "0024_chart_statistics")]

    operations = [RunSchemaFile(forwards="events.sql", backwards="events_drop.sql")]
