"""django-tasks-db: ``definition.py`` has settings and commands, ``tasks.py`` the tasks."""
