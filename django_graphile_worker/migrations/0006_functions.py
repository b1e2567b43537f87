from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import ReplaceFunctions, RunSchemaFile


class Migration(migrations.Migration):
    """Functions that add and manage jobs: safe from objects of other roles, and from each other's locks."""

    dependencies = [("graphile_worker", "0005_claim_identity")]

    operations = [
        RunSchemaFile(forwards="names_lock.sql", backwards="names_lock_drop.sql"),
        ReplaceFunctions(
            "functions_v2",
            forwards=("job_rules_v2.sql", "add_job_v2.sql", "add_jobs_v2.sql", "job_management_v2.sql"),
            backwards=(
                "job_rules.sql",
                "add_job.sql",
                "add_jobs.sql",
                "job_management.sql",
                "add_jobs_v2_drop.sql",
                "add_job_v2_drop.sql",
            ),
        ),
    ]
