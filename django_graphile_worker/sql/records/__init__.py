"""Statements about what remains of jobs and attempts that have ended: results, the history, and who waits for them.

The functions of the schema that end claims and jobs write them, with ``_private_record_attempts`` of
``sql/ddl/history.sql``; ``sql.releases`` and ``sql.result_keeping`` tell them what to record. ``results`` has the
status of a result and deletes expired ones, ``result_rows`` reads results for ``wait_for_result()`` and the admin,
``task_results`` for Django Tasks. ``history`` makes and drops the partitions of the history, ``waiters`` lists the
sessions that wait for a job. ``sql/ddl/tables.sql`` describes the tables.

The folder may import the modules beside it in ``sql``. None of them imports it.
"""

from __future__ import annotations
