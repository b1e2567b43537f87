from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """How finished jobs are deleted: the jobs of one claim in a single scan."""

    dependencies = [("graphile_worker", "0012_adding")]

    operations = [RunSchemaFile(forwards="complete_claims_v3.sql", backwards="complete_claims_v3_drop.sql")]
