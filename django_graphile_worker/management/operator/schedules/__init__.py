"""The verbs of ``manage.py graphile_worker schedules``, and what they share.

``definition_options.py`` turns options into the fields of a schedule. ``entries.py`` and ``difference.py`` are the file
of ``export`` and ``import``.
"""
