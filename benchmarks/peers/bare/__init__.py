"""The same work without a queue: ``definition.py`` has settings and commands, ``loop.py`` does the work."""
