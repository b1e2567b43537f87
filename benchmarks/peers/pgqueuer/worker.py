"""Run a worker of pgqueuer as a library, on uvloop as its command does: BATCH and LIMIT are its settings.

Its command does not start with the version of typer that pip installs beside it.
"""

from __future__ import annotations

import os

import uvloop

from benchmarks.peers.pgqueuer.tasks import main


async def work() -> None:
    queue = await main()
    limit = os.environ.get("LIMIT")
    await queue.run(batch_size=int(os.environ["BATCH"]), max_concurrent_tasks=int(limit) if limit else None)


if __name__ == "__main__":
    uvloop.run(work())
