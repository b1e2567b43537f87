"""Adds jobs of many kinds, with the code in the directory of its argument, until its standard input ends.

It commits a record of each job with the job, so the test knows which jobs exist, even if this process is killed.
"""

from __future__ import annotations

import os
import select
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

RECORD = "insert into fault_history.event (kind, job_id, pid, note) values ('added', %s, %s, %s)"


def main() -> None:
    # Instead of the directory of this file.
    sys.path[0] = str(Path(sys.argv[1]))
    import django

    django.setup()
    number = 0
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        add_round(number)
        number += 1


def add_round(number: int) -> None:
    from django.db import connection, transaction
    from django.utils import timezone

    from django_graphile_worker import JobSpec, add_job, add_jobs

    name = f"{os.getpid()}-{number}"
    brief: dict[str, Any] = {"seconds": 0.01}
    with transaction.atomic():
        jobs = [
            add_job("quick", brief, job_key=name, priority=number % 3),
            add_job("quick", brief, queue_name=f"q{number % 3}"),
            add_job("quick", brief, run_at=timezone.now() + timedelta(seconds=0.3)),
            add_job("failing", {"delay": 0.1}),
            add_job("exactly_once", {}),
            *add_jobs([JobSpec("quick", brief), JobSpec("quick", brief, queue_name="bulk", job_key=f"{name}-bulk")]),
        ]
        # Its runs leave no record of theirs.
        add_job("limited", {"account": number % 4, "seconds": 0.0})
        with connection.cursor() as cursor:
            cursor.executemany(RECORD, [(job.id, os.getpid(), job.task_identifier) for job in jobs])
        transaction.set_rollback(number % 10 == 9)


if __name__ == "__main__":
    main()
