from __future__ import annotations

from typing import Any

from django.db import migrations, models

from django_graphile_worker.models import table
from django_graphile_worker.models.tables import PayloadField, TimestampField


def page(name: str, of: str, singular: str, plural: str, **options: Any) -> migrations.CreateModel:
    """A proxy that stands for a page of the admin."""
    options |= {"verbose_name": singular, "verbose_name_plural": plural, "default_permissions": ("view",)}
    proxy = {"proxy": True, "indexes": [], "constraints": []}
    return migrations.CreateModel(name=name, fields=[], options=options | proxy, bases=(f"graphile_worker.{of}",))


class Migration(migrations.Migration):
    """The models of the tables, and the pages of the admin with their permissions."""

    dependencies = [("graphile_worker", "0004_indexes")]

    operations = [
        migrations.CreateModel(
            name="Task",
            fields=[
                ("id", models.IntegerField(primary_key=True, serialize=False)),
                ("identifier", models.TextField(unique=True)),
            ],
            options={
                "verbose_name": "task",
                "verbose_name_plural": "tasks",
                "db_table": table("_private_tasks"),
                "managed": False,
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="JobQueue",
            fields=[
                ("id", models.IntegerField(primary_key=True, serialize=False)),
                ("queue_name", models.TextField(unique=True)),
                ("locked_at", TimestampField(null=True)),
                ("locked_by", models.TextField(null=True)),
                ("is_available", models.BooleanField()),
            ],
            options={
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
                "db_table": table("_private_job_queues"),
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("payload", PayloadField()),
                ("priority", models.SmallIntegerField()),
                ("run_at", TimestampField()),
                ("attempts", models.SmallIntegerField()),
                ("max_attempts", models.SmallIntegerField()),
                ("last_error", models.TextField(null=True)),
                ("created_at", TimestampField()),
                ("updated_at", TimestampField()),
                ("key", models.TextField(null=True, unique=True)),
                ("locked_at", TimestampField(null=True)),
                ("locked_by", models.TextField(null=True)),
                ("revision", models.IntegerField()),
                ("flags", models.JSONField(null=True)),
                ("is_available", models.BooleanField()),
                (
                    "job_queue",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=models.DO_NOTHING,
                        related_name="jobs",
                        to="graphile_worker.jobqueue",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=models.DO_NOTHING,
                        related_name="jobs",
                        to="graphile_worker.task",
                    ),
                ),
            ],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "db_table": table("_private_jobs"),
                "permissions": [
                    ("view_payload", "Can see payloads and results, and errors unredacted"),
                    ("reschedule_job", "Can run and reschedule jobs"),
                    ("complete_job", "Can fail and delete jobs"),
                    ("cancel_job", "Can cancel jobs, also while they run"),
                ],
                "managed": False,
                "default_permissions": ("add", "view"),
            },
        ),
        migrations.CreateModel(
            name="KnownCrontab",
            fields=[
                ("identifier", models.TextField(primary_key=True, serialize=False)),
                ("known_since", TimestampField()),
                ("last_execution", TimestampField(null=True)),
            ],
            options={
                "verbose_name": "known crontab",
                "verbose_name_plural": "known crontabs",
                "db_table": table("_private_known_crontabs"),
                "managed": False,
                "default_permissions": (),
            },
        ),
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
        page("Overview", "job", "overview", "overview"),
        page("ErrorGroup", "job", "error", "errors"),
        page("PastAttempt", "job", "past attempt", "history"),
        page(
            "LimitKey",
            "job",
            "limit key",
            "limits",
            permissions=[("override_limit", "Can change the numbers of limits")],
        ),
        page(
            "PausedWork",
            "jobqueue",
            "pause",
            "pauses",
            permissions=[("pause_work", "Can pause and resume queues, tasks and flags")],
        ),
        page(
            "RecurringTask",
            "knowncrontab",
            "recurring task",
            "recurring tasks",
            permissions=[
                ("run_recurringtask", "Can run recurring tasks now"),
                ("pause_recurringtask", "Can pause and resume recurring tasks"),
            ],
        ),
        page("Event", "worker", "event", "events", permissions=[("dismiss_event", "Can dismiss alarms about events")]),
    ]
