"""Ends claims: sends the outcome of each job to the database, until the database has accepted it.

Imports ``sql``, ``worker.service``, ``worker.outcomes``, ``worker.recording`` and ``worker.database``, and no other
folder of the worker. Start reading in ``releaser.py``: it collects outcomes in ``pending.py``, groups them in
``batches.py`` and sends them with ``statements.py``.
"""
