from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import BuildIndexes


class Migration(migrations.Migration):
    """The indexes of jobs and queues, which may be large and in use."""

    atomic = False

    dependencies = [("graphile_worker", "0003_functions")]

    operations = [BuildIndexes()]
