from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    """Searches that users have saved."""

    dependencies = [("graphile_worker", "0022_job_actions")]

    operations = []
