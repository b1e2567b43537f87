"""Tasks with limits, for the benchmark of limits alone: other workers have no limited tasks."""

from __future__ import annotations

import os
import time
from typing import Any

from shop.tasks import noop

from django_graphile_worker import Limit, task


@task(limit=Limit("account:{account}", concurrency=3))
def limited(payload: Any) -> None:
    noop(payload)


@task(fair="{tenant}")
def fair(payload: Any) -> None:
    """Note when the first job of each tenant starts, and how many jobs have started."""
    with open(os.environ["REPORT"], "a") as file:  # noqa: PTH123 - as in shop/tasks.py
        file.write(f"{payload['tenant']} {time.time()}\n")
    time.sleep(0.02)
