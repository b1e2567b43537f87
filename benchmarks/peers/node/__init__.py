"""graphile-worker from npm: ``installation.py`` installs it, ``commands.py`` starts it."""
