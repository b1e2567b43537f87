"""The installation of the worker schema: the statements of the migration operations, and of ``repair``.

``catalog`` reads what exists in the database, ``installer`` makes, adopts and drops the schema from the files of
``sql/ddl``, ``indexes`` builds indexes while jobs run, and ``locks`` keeps two migrations from running at once. Imports
from ``sql`` only. ``operations`` decides what to run; start reading at ``operations/schema.py``.
"""
