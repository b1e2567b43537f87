"""The worker, which claims jobs from the database, runs them and releases them.

``entrypoints`` has ``run_worker()``, ``run_once()`` and ``Worker`` for other code, ``process/`` the process around the
workers, ``runner`` the life of one worker. Read ``database_worker`` first: it owns the parts, which are in the folders
``fetching``, ``limited``, ``pool``, ``execution``, ``release``, ``control``, ``scheduling``, ``maintenance`` and
``reporting``, and it says what follows when something happens. The page "Architecture" of the documentation follows a
job through them.
"""
