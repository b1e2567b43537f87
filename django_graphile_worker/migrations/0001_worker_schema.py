from __future__ import annotations

from django.db import migrations, models

from django_graphile_worker.model_fields import PayloadField, TimestampField
from django_graphile_worker.models import table
from django_graphile_worker.operations import InstallWorkerSchema


class Migration(migrations.Migration):
    """The worker schema as graphile-worker has it, made or adopted, and models to read it."""

    initial = True

    operations = [
        InstallWorkerSchema(),
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
                "verbose_name": "job queue",
                "verbose_name_plural": "job queues",
                "db_table": table("_private_job_queues"),
                "managed": False,
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
                "managed": False,
            },
        ),
    ]
