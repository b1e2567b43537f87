from __future__ import annotations

from django_graphile_worker.management.worker_command import WorkerCommand


class Command(WorkerCommand):
    help = "Run the jobs in the queue until stopped."
