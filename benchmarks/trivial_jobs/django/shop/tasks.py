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
        _report(f"first {time.monotonic()}")
    if number % _every == 0:
        _report(str(_every))


def _report(line: str) -> None:
    with open(os.environ["REPORT"], "a") as file:  # noqa: PTH123 - pathlib is not loaded at the start of a worker
        file.write(line + "\n")


@task
def stamp(payload: Any) -> None:
    sys.stdout.write(json.dumps({"number": payload["number"], "at": time.time() * 1000}) + "\n")
    sys.stdout.flush()
