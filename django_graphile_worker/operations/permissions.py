"""The operation that renames permissions of the admin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.apps import apps
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation


class RenamePermissions(Operation):
    """An operation that gives permissions other names, for example in a list of a user's permissions.

    Django creates permissions after a migration, and never renames them. A project may have no permissions, or have
    them in another database. ``names`` has the former and the new name by codename. A name that the project has changed
    stays.
    """

    reduces_to_sql = False
    reversible = True

    def __init__(self, names: Mapping[str, tuple[str, str]]) -> None:
        self.names = names

    def state_forwards(self, app_label: str, state: Any) -> None:
        pass

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: Any, to_state: Any
    ) -> None:
        for codename, (former, name) in self.names.items():
            _rename(app_label, schema_editor, codename, former, name)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: Any, to_state: Any
    ) -> None:
        for codename, (former, name) in self.names.items():
            _rename(app_label, schema_editor, codename, name, former)

    def describe(self) -> str:
        return f"Rename permissions: {', '.join(self.names)}"


def _rename(app_label: str, schema_editor: BaseDatabaseSchemaEditor, codename: str, former: str, name: str) -> None:
    connection = schema_editor.connection
    if schema_editor.collect_sql or not apps.is_installed("django.contrib.auth"):
        return
    # Not the model of the migration's state: this migration does not depend on those of django.contrib.auth.
    permission = apps.get_model("auth", "Permission")
    tables = {permission._meta.db_table, apps.get_model("contenttypes", "ContentType")._meta.db_table}
    if tables <= set(connection.introspection.table_names()):
        found = permission._base_manager.using(connection.alias)
        found.filter(content_type__app_label=app_label, codename=codename, name=former).update(name=name)
