from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import CreateFunctions


class Migration(migrations.Migration):
    """The functions of this package, and the public functions of graphile-worker as this package has them."""

    dependencies = [("graphile_worker", "0002_tables")]

    operations = [CreateFunctions()]
