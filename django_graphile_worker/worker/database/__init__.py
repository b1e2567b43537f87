"""The worker's own connections to PostgreSQL, separate from Django's connections, which belong to the tasks.

Start with ``connection``: one autocommit connection per part, which is opened again after it breaks. ``watchdog`` gives
every statement a deadline. ``prepared`` runs statements without the driver's cursor. The folder imports settings and
``sql``, and nothing else of the worker.
"""
