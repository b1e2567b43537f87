from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import BuildIndexes


class Migration(migrations.Migration):
    """The indexes of an adopted queue that is too large to stop everybody while they are built."""

    atomic = False

    dependencies = [("graphile_worker", "0003_statistics")]

    operations = [BuildIndexes("workers.sql", "claims.sql", "statistics.sql")]
