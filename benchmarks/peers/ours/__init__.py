"""This package: ``commands.py`` starts its worker on the trivial tasks of ``project/``.

``definition.py`` and ``tasks.py`` are for the real jobs.
"""
