"""The queues that run the real jobs."""

from __future__ import annotations

from benchmarks.peers.bare import definition as bare
from benchmarks.peers.celery import definition as celery
from benchmarks.peers.django_tasks_db import definition as django_tasks_db
from benchmarks.peers.dramatiq import definition as dramatiq
from benchmarks.peers.ours import definition as ours
from benchmarks.peers.peer import Peer
from benchmarks.peers.pgqueuer import definition as pgqueuer
from benchmarks.peers.procrastinate import definition as procrastinate

OURS = ours.PEER
BARE = bare.PEER
OTHERS: tuple[Peer, ...] = (
    procrastinate.PEER,
    django_tasks_db.PEER,
    pgqueuer.PEER,
    celery.PEER,
    dramatiq.PEER,
)
