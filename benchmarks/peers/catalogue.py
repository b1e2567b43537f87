"""The queues that run the real jobs."""

from __future__ import annotations

from benchmarks.peers import bare, celery, django_tasks_db, dramatiq, pgqueuer, procrastinate
from benchmarks.peers.ours import real_jobs
from benchmarks.peers.peer import Peer

OURS = real_jobs.PEER
BARE = bare.PEER
OTHERS: tuple[Peer, ...] = (
    procrastinate.PEER,
    django_tasks_db.PEER,
    pgqueuer.PEER,
    celery.PEER,
    dramatiq.PEER,
)
