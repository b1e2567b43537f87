from __future__ import annotations

from django.db import migrations, models

from django_graphile_worker.model_fields import TimestampField
from django_graphile_worker.models import table
from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """Schedules in the database."""

    dependencies = [("graphile_worker", "0026_page_names")]

    operations = [
        RunSchemaFile(forwards="schedules.sql", backwards="schedules_drop.sql"),
        RunSchemaFile(forwards="schedule_runs.sql", backwards="schedule_runs_drop.sql"),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=200, unique=True, verbose_name="name")),
                ("task", models.CharField(max_length=128, verbose_name="task")),
                ("payload", models.JSONField(blank=True, default=dict, verbose_name="payload")),
                ("cron", models.TextField(blank=True, null=True, verbose_name="cron line")),
                ("interval", models.DurationField(blank=True, null=True, verbose_name="interval")),
                ("run_at", models.DateTimeField(blank=True, null=True, verbose_name="run at")),
                ("time_zone", models.CharField(default="UTC", max_length=64, verbose_name="time zone")),
                ("starts_at", models.DateTimeField(blank=True, null=True, verbose_name="starts at")),
                ("ends_at", models.DateTimeField(blank=True, null=True, verbose_name="ends at")),
                ("queue_name", models.TextField(blank=True, null=True, verbose_name="queue")),
                ("priority", models.SmallIntegerField(blank=True, null=True, verbose_name="priority")),
                ("max_attempts", models.SmallIntegerField(blank=True, null=True, verbose_name="maximum attempts")),
                ("job_key", models.TextField(blank=True, null=True, verbose_name="job key")),
                (
                    "missed",
                    models.CharField(
                        choices=[("skip", "Skip them"), ("once", "Run once"), ("all", "Run all of them within a time")],
                        default="skip",
                        max_length=4,
                        verbose_name="missed times",
                    ),
                ),
                ("missed_within", models.DurationField(blank=True, null=True, verbose_name="missed within")),
                (
                    "overlap",
                    models.CharField(
                        choices=[
                            ("allow", "Run both"),
                            ("skip", "Skip the new run"),
                            ("queue", "Run one after the other"),
                        ],
                        default="allow",
                        max_length=5,
                        verbose_name="overlap",
                    ),
                ),
                ("is_enabled", models.BooleanField(default=True, verbose_name="enabled")),
                ("paused_until", models.DateTimeField(blank=True, null=True, verbose_name="paused until")),
                ("description", models.TextField(blank=True, default="", verbose_name="description")),
                ("changed_by", models.TextField(default="", editable=False, verbose_name="changed by")),
                ("is_from_code", models.BooleanField(default=False, editable=False)),
                ("created_at", models.DateTimeField(editable=False, null=True)),
                ("changed_at", models.DateTimeField(editable=False, null=True)),
                ("revision", models.IntegerField(editable=False, null=True)),
                ("anchor_at", models.DateTimeField(editable=False, null=True)),
                ("counts_from", models.DateTimeField(editable=False, null=True)),
                ("next_at", TimestampField(editable=False, null=True)),
                ("last_tick", models.DateTimeField(editable=False, null=True)),
                ("last_job_id", models.BigIntegerField(editable=False, null=True)),
                ("last_missed_at", models.DateTimeField(editable=False, null=True)),
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "db_table": table("_private_schedules"),
                "permissions": [
                    ("run_schedule", "Can run schedules now"),
                    ("pause_schedule", "Can pause and resume schedules"),
                ],
                "managed": False,
            },
        ),
        migrations.AlterModelOptions(
            name="recurringtask",
            options={
                "default_permissions": ("view",),
                "permissions": [
                    ("run_recurringtask", "Can run recurring tasks now"),
                    ("pause_recurringtask", "Can pause and resume recurring tasks"),
                ],
                "verbose_name": "recurring task",
                "verbose_name_plural": "recurring tasks",
            },
        ),
    ]
