"""Fires schedules of the database, and items of the crontab in the code. Start reading in ``scheduler.py``.

``scheduler.py`` is the service and its round, ``decisions.py`` decides what becomes of what is due, ``items.py`` knows
when the items of the crontab are due next, and ``yielding.py`` what this worker leaves for a while.
"""
