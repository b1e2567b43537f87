from __future__ import annotations

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from django_graphile_worker.operations.schema_operations import SchemaOperation
from django_graphile_worker.sql.install import catalog
from django_graphile_worker.sql.install.catalog import Part
from django_graphile_worker.sql.install.installer import FUNCTION_FILES
from django_graphile_worker.sql.statements import ddl, statement

# What releases may add: tables, columns, and other texts of functions with the same arguments.
ADD = """
create table :SCHEMA._private_next (id bigint primary key);
alter table :SCHEMA._private_workers add column next text;
"""
REMOVE = """
drop table :SCHEMA._private_next;
alter table :SCHEMA._private_workers drop column next;
"""


class AddNext(SchemaOperation):
    part = "next"

    def write_install(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        schema_editor.execute(statement(ADD, schema), params=None)
        for filename in FUNCTION_FILES:
            schema_editor.execute(ddl(filename, schema), params=None)
        catalog.record_part(schema_editor.execute, Part(name=self.part), schema=schema)

    def write_uninstall(self, schema_editor: BaseDatabaseSchemaEditor, schema: str) -> None:
        schema_editor.execute(statement(REMOVE, schema), params=None)
        catalog.forget_part(schema_editor.execute, self.part, schema=schema)


class Migration(migrations.Migration):
    dependencies = [("graphile_worker", "0005_models")]

    operations = [AddNext()]
