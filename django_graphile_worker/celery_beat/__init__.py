"""Imports the periodic tasks of django-celery-beat as schedules.

It reads the tables of the package and never imports the package itself, which may be uninstalled already. Start reading
with ``importer``; ``translation`` has what becomes of each field.
"""

from __future__ import annotations
