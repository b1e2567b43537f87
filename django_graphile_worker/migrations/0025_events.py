from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """Events that operators read later, and the page that shows them."""

    dependencies = [("graphile_worker", "0024_chart_statistics")]

    operations = [
        RunSchemaFile(forwards="events.sql", backwards="events_drop.sql"),
        migrations.CreateModel(
            name="Event",
            fields=[],
            options={
                "verbose_name": "event",
                "verbose_name_plural": "events",
                "permissions": [("dismiss_event", "Can dismiss alarms about events")],
                "proxy": True,
                "default_permissions": ("view",),
                "indexes": [],
                "constraints": [],
            },
            bases=("graphile_worker.worker",),
        ),
    ]
