"""Installing the worker schema: the statements behind the migration operations, and behind ``repair``.

``catalog`` reads what the database holds, ``installer`` makes, adopts and drops the schema from the files of
``sql/ddl``, ``indexes`` builds indexes while jobs run, and ``locks`` keeps two migrations apart. Imports from ``sql``
only.
``operations`` decides what to run; start reading at ``operations/schema.py``.
"""
