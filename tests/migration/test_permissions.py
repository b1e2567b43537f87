"""The names of the permissions, as they are listed in the admin."""

from __future__ import annotations

from django.contrib.auth.models import Permission
from django.core.management import call_command

from tests.migration.conftest import Site

FORMER = {
    "view_payload": "Can see payloads and errors unredacted",
    "complete_job": "Can complete, fail and remove jobs",
}
NAMES = {
    "view_payload": "Can see payloads and results, and errors unredacted",
    "complete_job": "Can fail and delete jobs",
}


def names(site: Site) -> dict[str, str]:
    found = Permission.objects.using(site.alias).filter(codename__in=NAMES)
    return dict(found.values_list("codename", "name"))


def test_permissions__are_renamed_unless_the_project_did_so(site: Site) -> None:
    call_command("migrate", database=site.alias, verbosity=0, interactive=False)
    assert names(site) == NAMES
    site.migrate("0026")
    assert names(site) == FORMER
    Permission.objects.using(site.alias).filter(codename="complete_job").update(name="Clean up")
    site.migrate()
    assert names(site) == {**NAMES, "complete_job": "Clean up"}


def test_site_without_permissions__is_migrated(site: Site) -> None:
    site.migrate("0028")
    with site.connect() as connection:
        found = connection.execute("select tablename from pg_tables where tablename = 'auth_permission'")
        assert found.fetchall() == []


def test_models_without_a_page__have_no_permissions(site: Site) -> None:
    call_command("migrate", database=site.alias, verbosity=0, interactive=False)
    unused = Permission.objects.using(site.alias).filter(content_type__model__in=("task", "knowncrontab"))
    assert not unused.exists()
