"""Statements of the figures that charts and tiles show: counts of ended runs, and samples of the backlog.

``statistics`` has the counts of tasks, queues and workers, ``backlog_samples`` how many jobs were in each state.
``sql/ddl/tables.sql`` describes the tables. The folder may import the modules beside it in ``sql``.
"""

from __future__ import annotations
