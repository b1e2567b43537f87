"""Reading the queue for people: the admin and the operator's command look through here. Nothing is changed.

`criteria` say which jobs are meant, `walks` lead to them along the indexes, `search` finds a page of them and
`counts` how many there are; `job_detail` is about one of them. The rest is what is around jobs: the queues, who
holds what, errors that are alike, the backlog of each task and the health of the database. `guard` sees to it
that looking never hurts the queue.
"""

from __future__ import annotations
