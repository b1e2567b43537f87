from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    """Names of models as the pages of the admin show them."""

    dependencies = [("graphile_worker", "0025_events")]

    operations = [
        migrations.AlterModelOptions(
            name="jobqueue",
            options={
                "default_permissions": ("view",),
                "managed": False,
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
            },
        ),
        migrations.AlterModelOptions(
            name="overview",
            options={
                "default_permissions": ("view",),
                "verbose_name": "overview",
                "verbose_name_plural": "overview",
            },
        ),
        migrations.AlterModelOptions(
            name="limitkey",
            options={
                "default_permissions": ("view",),
                "permissions": [("override_limit", "Can change the numbers of limits")],
                "verbose_name": "limit key",
                "verbose_name_plural": "limits",
            },
        ),
    ]
