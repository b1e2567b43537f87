from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """Room on the pages of jobs for the versions that claims write."""

    dependencies = [("graphile_worker", "0030_claims_side_by_side")]

    operations = [RunSchemaFile(forwards="room_on_pages.sql", backwards="room_on_pages_drop.sql")]
