"""Reading the queue for people, for the admin and the operator's commands. Nothing here changes a row.

``criteria`` say which jobs are meant, ``index_walks`` find them along the indexes, ``search`` returns a page of them,
``counts`` how many there are, and ``job_detail`` one job with its details. The other modules read what is around jobs:
queues (``queue_depths``), holders of locks (``lock_holders``), groups of errors (``error_groups``), the backlog of each
task and the health of the database (``overview``). ``limits`` keeps these statements from slowing down the queue.

Start reading at ``criteria`` and ``index_walks``. Imports from ``sql`` only. A new statement must stay fast with ten
million jobs: walk along an index and end at a limit.
"""

from __future__ import annotations
