from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RenamePermissions


class Migration(migrations.Migration):
    """Permissions in the words of the pages, and no permissions that no page checks."""

    dependencies = [("graphile_worker", "0027_schedules")]

    operations = [
        migrations.AlterModelOptions(
            name="job",
            options={
                "default_permissions": ("add", "view"),
                "managed": False,
                "permissions": [
                    ("view_payload", "Can see payloads and results, and errors unredacted"),
                    ("reschedule_job", "Can run and reschedule jobs"),
                    ("complete_job", "Can fail and delete jobs"),
                    ("cancel_job", "Can cancel jobs, also while they run"),
                ],
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
            },
        ),
        migrations.AlterModelOptions(
            name="task",
            options={
                "default_permissions": (),
                "managed": False,
                "verbose_name": "task",
                "verbose_name_plural": "tasks",
            },
        ),
        migrations.AlterModelOptions(
            name="knowncrontab",
            options={
                "default_permissions": (),
                "managed": False,
                "verbose_name": "known crontab",
                "verbose_name_plural": "known crontabs",
            },
        ),
        # Django creates permissions by these names, and does not rename those that exist.
        RenamePermissions(
            {
                "view_payload": (
                    "Can see payloads and errors unredacted",
                    "Can see payloads and results, and errors unredacted",
                ),
                "complete_job": ("Can complete, fail and remove jobs", "Can fail and delete jobs"),
            }
        ),
    ]
