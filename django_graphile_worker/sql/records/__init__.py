"""Statements about what remains of jobs and attempts that have ended: results, the history, and who waits for them.

Start with ``recorded_releases``, which ends claims and writes both records in the same statement (``id_spans`` places
their values); the statements that end jobs without having run them know through ``sql.result_keeping`` what to record.
``results`` has the status of a result and deletes expired ones, ``result_rows`` reads results for ``wait_for_result()``
and the admin, ``task_results`` for Django Tasks. ``history`` makes and drops the partitions of the history, ``waiters``
lists the sessions that wait for a job. ``sql/ddl/results.sql`` describes the tables.

The folder may import the modules beside it in ``sql``. None of them imports it, so that the claims of jobs of which
nothing is recorded end without it; for that reason ``result_keeping`` is not here.
"""

from __future__ import annotations
