from __future__ import annotations

from django.db import migrations, models

from django_graphile_worker.models import table
from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """Searches that users have saved."""

    dependencies = [("graphile_worker", "0022_job_actions")]

    operations = [
        RunSchemaFile(forwards="saved_views.sql", backwards="saved_views_drop.sql"),
        migrations.CreateModel(
            name="SavedView",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("owner", models.CharField(max_length=255)),
                ("owner_name", models.CharField(max_length=255)),
                ("name", models.CharField(max_length=100)),
                ("parameters", models.JSONField(default=dict)),
                ("is_shared", models.BooleanField(default=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "verbose_name": "saved view",
                "verbose_name_plural": "saved views",
                "db_table": table("_private_saved_views"),
                "permissions": [("share_savedview", "Can share saved views with all users")],
                "default_permissions": (),
                "managed": False,
            },
        ),
    ]
