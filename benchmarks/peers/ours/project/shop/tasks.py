"""The tasks that are measured; benchmarks/draining.py reads what they report."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from typing import Any

from django_graphile_worker import task

_every = int(os.environ.get("REPORT_EVERY", "1000"))
_numbers = itertools.count(1)


@task
def noop(payload: Any) -> None:
    number = next(_numbers)
    if number == 1:
        report(f"first {time.monotonic()}")
    if number % _every == 0:
        report(str(_every))


@task
def answer(payload: Any) -> Any:
    """Do what noop does, and return a small value."""
    noop(payload)
    return {"order": 4711, "total": "12.50", "is_paid": True}


def report(line: str) -> None:
    with open(os.environ["REPORT"], "a") as file:  # noqa: PTH123 - pathlib is not loaded at the start of a worker
        file.write(line + "\n")


@task
def stamp(payload: Any) -> None:
    at, cpu = time.time() * 1000, time.process_time() * 1000
    sys.stdout.write(json.dumps({"number": payload["number"], "at": at, "cpu": cpu}) + "\n")
    sys.stdout.flush()


if "LIMITED" in os.environ:
    import limited  # noqa: F401 - it registers tasks

if "COUNTING" in os.environ:
    import counting

    counting.change(os.environ["COUNTING"])
