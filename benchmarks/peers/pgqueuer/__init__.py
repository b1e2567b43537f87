"""pgqueuer: ``definition.py`` has settings and commands, ``tasks.py`` the tasks."""
