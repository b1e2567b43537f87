"""Fires the schedules of the database. Start reading in ``rounds.py``.

``scheduler.py`` is the service, which a worker has from the moment on at which there is a schedule. It loads the rest
on its own thread. ``moves.py`` decides what becomes of a schedule, and ``known_tasks.py`` finds its task.
"""
