from __future__ import annotations

from typing import Any

from django.db import migrations, models

from django_graphile_worker.model_fields import TimestampField
from django_graphile_worker.models import table
from django_graphile_worker.operations import RunSchemaFile


def page(name: str, of: str, singular: str, plural: str, **options: Any) -> migrations.CreateModel:
    """A proxy that stands for a page of the admin."""
    options |= {"verbose_name": singular, "verbose_name_plural": plural, "default_permissions": ("view",)}
    proxy = {"proxy": True, "indexes": [], "constraints": []}
    return migrations.CreateModel(name=name, fields=[], options=options | proxy, bases=(f"graphile_worker.{of}",))


class Migration(migrations.Migration):
    """What the dashboard needs: statistics, indexes over failed jobs, pages with their permissions."""

    dependencies = [("graphile_worker", "0002_workers")]

    operations = [
        RunSchemaFile(forwards="statistics.sql", backwards="statistics_drop.sql"),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.TextField(primary_key=True, serialize=False)),
                ("last_heartbeat_at", TimestampField()),
                ("started_at", TimestampField()),
                ("metadata", models.JSONField()),
            ],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "db_table": table("_private_workers"),
                "permissions": [("unlock_worker", "Can force-unlock the jobs and queues of workers")],
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        page("ErrorGroup", "job", "error", "errors"),
        page("Overview", "job", "overview", " Overview"),
        page(
            "RecurringTask",
            "knowncrontab",
            "recurring task",
            "recurring tasks",
            permissions=[("run_recurringtask", "Can run recurring tasks now")],
        ),
        migrations.AlterModelOptions(
            name="job",
            options={
                "default_permissions": ("add", "view"),
                "managed": False,
                "permissions": [
                    ("view_payload", "Can see payloads and errors unredacted"),
                    ("reschedule_job", "Can run and reschedule jobs"),
                    ("complete_job", "Can complete, fail and remove jobs"),
                ],
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
            },
        ),
        migrations.AlterModelOptions(
            name="jobqueue",
            options={
                "default_permissions": ("view",),
                "managed": False,
                "verbose_name": "job queue",
                "verbose_name_plural": "job queues",
            },
        ),
    ]
