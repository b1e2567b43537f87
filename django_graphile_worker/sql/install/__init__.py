"""The installation of the worker schema: the statements of the migration operations, and of ``repair``.

``catalog`` reads what exists in the database, ``installer`` makes, adopts and drops the schema from the files of
``sql/ddl``, one migration at a time, and ``indexes`` builds indexes while jobs run.
``privileges`` is about the rights of roles. ``operations`` decides what to run.
"""
