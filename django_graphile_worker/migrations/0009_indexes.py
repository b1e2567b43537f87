from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import BuildIndexes


class Migration(migrations.Migration):
    """The later indexes of a queue that is too large to stop everybody while they are built."""

    atomic = False

    dependencies = [("graphile_worker", "0008_statistics")]

    operations = [BuildIndexes("end_claims_v2.sql")]
