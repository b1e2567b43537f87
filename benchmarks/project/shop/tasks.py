from __future__ import annotations

import json
import sys
import time
from typing import Any

from django_graphile_worker import task


@task
def stamp(payload: Any) -> None:
    at, cpu = time.time() * 1000, time.process_time() * 1000
    sys.stdout.write(json.dumps({"number": payload["number"], "at": at, "cpu": cpu}) + "\n")
    sys.stdout.flush()
