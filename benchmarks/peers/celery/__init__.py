"""Celery with Redis: ``definition.py`` has settings and commands, ``tasks.py`` the tasks."""
