from __future__ import annotations

from django.db import migrations

from django_graphile_worker.operations import InstallWorkerSchema


class Migration(migrations.Migration):
    """The tables of graphile-worker, made or adopted."""

    initial = True

    operations = [InstallWorkerSchema()]
