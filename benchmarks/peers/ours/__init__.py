"""This package: ``commands.py`` starts its worker on the tasks of ``project/``, ``tasks.py`` has the real jobs."""
