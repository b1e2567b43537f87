from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """The worker of a lock, and the markers of jobs that are cancelled while they are claimed."""

    dependencies = [("graphile_worker", "0004_indexes")]

    operations = [RunSchemaFile(forwards="claim_identity.sql", backwards="claim_identity_drop.sql")]
