"""Runs past their deadline that their own process cannot stop, because a task keeps all its threads from running.

``run_records`` is the memory in which a worker process notes its runs, ``watch`` reads it in the supervisor and ends
the process, ``end_of_runs`` ends the claims of that process in the process that follows. Start reading in ``watch``.
The folder is loaded only if a task has a time limit. It imports ``parts`` and the folders below.
"""
