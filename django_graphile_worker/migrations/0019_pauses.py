from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """Tasks, queues and flags whose jobs wait, and jobs that expire."""

    dependencies = [("graphile_worker", "0018_stop_requests")]

    operations = [
        RunSchemaFile(forwards="pauses.sql", backwards="pauses_drop.sql"),
        RunSchemaFile(forwards="expiry.sql", backwards="expiry_drop.sql"),
        migrations.CreateModel(
            name="PausedWork",
            fields=[],
            options={
                "verbose_name": "pause",
                "verbose_name_plural": "pauses",
                "permissions": [("pause_work", "Can pause and resume queues, tasks and flags")],
                "default_permissions": ("view",),
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("graphile_worker.jobqueue",),
        ),
    ]
