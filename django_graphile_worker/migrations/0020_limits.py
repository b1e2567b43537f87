from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """How many jobs of a key may run at once, and how many may start in a time."""

    dependencies = [("graphile_worker", "0019_pauses")]

    operations = [
        RunSchemaFile(forwards="limit_overrides.sql", backwards="limit_overrides_drop.sql"),
        RunSchemaFile(forwards="limits.sql", backwards="limits_drop.sql"),
        RunSchemaFile(forwards="limit_lanes.sql", backwards="limit_lanes_drop.sql"),
        RunSchemaFile(forwards="limit_claims.sql", backwards="limit_claims_drop.sql"),
        migrations.CreateModel(
            name="LimitKey",
            fields=[],
            options={
                "verbose_name": "key of a limit",
                "verbose_name_plural": "limits",
                "default_permissions": ("view",),
                "permissions": [("override_limit", "Can change the numbers of limits")],
                "proxy": True,
                "indexes": [],
                "constraints": [],
            },
            bases=("graphile_worker.job",),
        ),
    ]
