from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """How claims end: each statement states the job and the claim that it ends."""

    dependencies = [("graphile_worker", "0006_functions")]

    operations = [
        RunSchemaFile(forwards="end_claims_v2.sql", backwards="end_claims_v2_drop.sql"),
        RunSchemaFile(forwards="leases_v2.sql", backwards="leases_v2_drop.sql"),
    ]
