"""Statements that add jobs: one or many, with a key or without.

Start with ``add_job``. ``add_jobs`` adds many jobs with few statements, and both call ``insert_jobs`` for jobs without
a key. ``copy_jobs`` adds thousands of such jobs by COPY. ``sql/ddl/insert_jobs.sql`` has the functions for jobs without
a key, ``sql/ddl/add_job_v2.sql`` and ``sql/ddl/add_jobs_v2.sql`` the public ones. The folder may import the modules
beside it in ``sql``. None of them imports it: a worker loads it when a task adds a job.
"""

from __future__ import annotations
