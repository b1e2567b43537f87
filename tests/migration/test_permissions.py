"""The names of the permissions, as they are listed in the admin."""

from __future__ import annotations

from django.contrib.auth.models import Permission
from django.core.management import call_command

from tests.migration.conftest import Site


def test_site_without_permissions__is_migrated(site: Site) -> None:
    site.migrate()
    with site.connect() as connection:
        found = connection.execute("select tablename from pg_tables where tablename = 'auth_permission'")
        assert found.fetchall() == []


def test_models_without_a_page__have_no_permissions(site: Site) -> None:
    call_command("migrate", database=site.alias, verbosity=0, interactive=False)
    unused = Permission.objects.using(site.alias).filter(content_type__model__in=("task", "knowncrontab"))
    assert not unused.exists()
