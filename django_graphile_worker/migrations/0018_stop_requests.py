from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import RunSchemaFile


class Migration(migrations.Migration):
    """Requests to stop running jobs."""

    dependencies = [("graphile_worker", "0017_adding_alone")]

    operations = [RunSchemaFile(forwards="stop_requests.sql", backwards="stop_requests_drop.sql")]
