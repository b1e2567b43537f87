"""``python -m django_graphile_worker.probe PATH``: check the worker that writes this health file.

It is the liveness probe of a container. It loads neither Django nor the project, so it starts as fast as Python itself.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from glob import escape
from pathlib import Path

USAGE = "usage: python -m django_graphile_worker.probe [--ready] PATH"


def problems(path: str, *, must_be_ready: bool = False) -> list[str]:
    """Return the problems of the worker, at most one for each of its processes."""
    file = Path(path)
    # A worker with several processes has several files: PATH.0, PATH.1 and so on.
    files = [*([file] if file.exists() else []), *sorted(file.parent.glob(f"{escape(file.name)}.[0-9]*"))]
    if not files:
        return [f"{path} does not exist: no worker runs with --health-file {path}"]
    return [problem for each in files if (problem := _problem(each, must_be_ready))]


def _problem(path: Path, must_be_ready: bool) -> str:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        age, valid = time.time() - float(content["written_at"]), float(content["valid_seconds"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        return f"Cannot read {path}: {type(error).__name__}: {error}"
    if age > valid:
        return f"{path} is {age:.0f} s old, more than {valid:.0f} s: the worker hangs, or has ended"
    if must_be_ready and not content.get("is_ready"):
        return f"{path}: the worker waits for its database"
    return ""


def main(arguments: Sequence[str]) -> int:
    paths = [argument for argument in arguments if argument != "--ready"]
    if len(paths) != 1 or paths[0].startswith("-"):
        sys.stderr.write(f"{USAGE}\n")
        return 2
    found = problems(paths[0], must_be_ready="--ready" in arguments)
    for problem in found:
        sys.stderr.write(f"{problem}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
