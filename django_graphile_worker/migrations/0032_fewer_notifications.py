from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """Fewer notifications, and less work for clients that need not notify, if many clients add jobs."""

    dependencies = [("graphile_worker", "0031_room_on_pages")]

    operations = [RunSchemaFile(forwards="insert_job_alone_v2.sql", backwards="insert_job_alone_v2_drop.sql")]
