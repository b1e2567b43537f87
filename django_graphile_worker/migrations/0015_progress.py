from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """How far running jobs have got, and the page that shows the history of attempts."""

    dependencies = [("graphile_worker", "0014_results")]

    operations = [
        RunSchemaFile(forwards="progress.sql", backwards="progress_drop.sql"),
        migrations.CreateModel(
            name="PastAttempt",
            fields=[],
            options={
                "verbose_name": "past attempt",
                "verbose_name_plural": "history",
                "default_permissions": ("view",),
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("graphile_worker.job",),
        ),
    ]
