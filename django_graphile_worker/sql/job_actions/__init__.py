"""Statements of the actions on jobs: run now, run next, retry, reschedule, fail, delete and cancel.

Start with ``changes``, which has the changes of single jobs; ``bulk_steps`` makes them to all jobs that match a search.
``sql/ddl/operators.sql`` has the functions. The folder may import ``sql`` and the layers below it.
"""
