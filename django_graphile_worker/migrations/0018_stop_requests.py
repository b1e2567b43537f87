from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """Requests to stop running jobs, and the permission to cancel jobs in the admin."""

    dependencies = [("graphile_worker", "0017_adding_alone")]

    operations = [
        RunSchemaFile(forwards="stop_requests.sql", backwards="stop_requests_drop.sql"),
        migrations.AlterModelOptions(
            name="job",
            options={
                "default_permissions": ("add", "view"),
                "managed": False,
                "permissions": [
                    ("view_payload", "Can see payloads and errors unredacted"),
                    ("reschedule_job", "Can run and reschedule jobs"),
                    ("complete_job", "Can complete, fail and remove jobs"),
                    ("cancel_job", "Can cancel jobs, also while they run"),
                ],
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
            },
        ),
    ]
