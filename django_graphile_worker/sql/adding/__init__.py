"""Statements that add jobs: one or many, with a key or without.

``add_job`` adds one job, ``add_jobs`` many with few statements, ``unique_jobs`` those that are not there yet. All of
them call the functions of ``sql/ddl/public_functions.sql``; ``sql/ddl/adding.sql`` has what these share. The folder may
import the modules beside it in ``sql``. None of them imports it: a worker loads it when a task adds a job.
"""

from __future__ import annotations
