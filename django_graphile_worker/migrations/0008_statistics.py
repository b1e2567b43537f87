from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """Where workers leave what they have counted, and when recurring tasks that are paused last ran."""

    dependencies = [("graphile_worker", "0007_releases")]

    operations = [
        RunSchemaFile(forwards="statistics_v2.sql", backwards="statistics_v2_drop.sql"),
        RunSchemaFile(forwards="paused_crontabs.sql", backwards="paused_crontabs_drop.sql"),
    ]
