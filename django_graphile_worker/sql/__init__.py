"""The only package that executes SQL.

A module holds the statements of one subject, each as a constant next to the function that sends it. Start reading at
``claims`` and ``releases``, which a worker uses for every job.

Jobs:         ``adding``, ``jobs``, ``progress``, ``cleanup``
Claims:       ``claims``, ``limits`` (limits per key), ``releases``, ``recovery`` (of dead workers)
Their end:    ``results`` (what is kept: results and history)
Workers:      ``workers``, ``control`` (what is asked of them), ``events``, ``statistics``
The database: ``session``, ``errors``
Statements:   ``statements``, ``codecs``
Other code:   ``celery_beat`` (tables of django-celery-beat)

Subjects of several modules have folders: ``schedules``, ``job_actions`` (of operators), ``inspection`` (reads jobs for
the admin and the commands), ``install`` (makes the schema), and ``ddl`` with the files that migrations run.

To add a statement: write the text with ``:SCHEMA`` for the schema, a tag comment such as ``/* gw:claim */`` at its
beginning, and a type for each parameter; send it through ``statements.statement``, which makes it safe under any
search_path. The function takes the caller's cursor and the name of the schema, opens no transaction and commits
nothing. A condition that several statements share belongs in ``jobs``, the conversion of a value in ``codecs``. A
statement that ends a claim names the claim: the job's id and the whole ``locked_by``.

Imports values, settings and tasks, such as ``jobs``, ``limits``, ``schedules``, ``conf`` and ``registry``; nothing of
the API, the worker or the admin.
"""

from __future__ import annotations
