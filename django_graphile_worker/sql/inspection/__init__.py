"""Reads jobs, queues and workers for the admin and the commands of operators. Nothing here changes a row.

``job_list`` lists and counts jobs, ``known_names`` finds their names, and ``job_detail`` returns one job with its
details. ``past_attempts`` searches the attempts that have ended. The other modules read queues
(``queue_depths``), holders of locks (``lock_holders``), groups of errors (``error_groups``), the backlog of each task
and the health of the database (``overview``), and so on. ``statement_limits`` keeps these statements from slowing down
the workers.

Start reading at ``overview``, and for lists at ``job_list``. Imports from ``sql`` only. A new statement must stay
fast with ten million jobs: walk along an index and end at a limit.
"""

from __future__ import annotations
