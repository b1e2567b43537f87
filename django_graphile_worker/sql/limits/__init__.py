"""Statements of limits per key: jobs are sorted into lanes, claimed, and free their places when they end.

``ddl/tables.sql`` describes the tables. ``sorting`` puts due jobs into lanes, ``claiming`` claims them, ``places``
frees the places of jobs that have ended and closes keys, ``sweeping`` repairs what crashes and changes left behind. The
folder may import ``limits``, ``sql.claims``, ``sql.codecs`` and ``sql.schema``. Start reading with ``sorting``.
"""
