"""Keeps Django's connections usable before each job and clean after it.

Start reading in ``lifecycle``: the executor calls its ``begin()`` and ``end()`` around each job. ``watched_connection``
checks one connection, ``session_changes`` finds what a job changed in its session. ``session_changing_sql`` reads the
text of statements, ``session_changing_functions`` the text of functions and triggers in the database.

Imports nothing else of the worker. All modules but ``lifecycle`` are loaded when a thread first opens a connection.
"""
