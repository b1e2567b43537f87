"""Statements of the figures that charts and tiles show: counts of ended runs, and samples of the backlog.

Start with ``statistics``, the counts for each task. ``named_statistics`` has the counts for named queues and workers,
``backlog_samples`` how many jobs were in each state. ``sql/ddl/statistics.sql`` and ``sql/ddl/chart_statistics.sql``
describe the tables. The folder may import the modules beside it in ``sql``.
"""

from __future__ import annotations
