from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """Tasks, queues and flags whose jobs wait."""

    dependencies = [("graphile_worker", "0018_stop_requests")]

    operations = [RunSchemaFile(forwards="pauses.sql", backwards="pauses_drop.sql")]
