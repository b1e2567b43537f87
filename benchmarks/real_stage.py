"""Where the real jobs run: a database for each queue, Redis, the HTTP service, and the environment of the peers.

The environment is a folder of the checkout that git ignores, never the project's own; ``real_jobs/requirements.txt``
pins everything in it. This package is imported from the checkout, so that it runs with the same versions of Python,
Django and psycopg as the others.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from benchmarks import CHECKOUT
from benchmarks.database import Database, scratch_database
from benchmarks.draining import Command, drain, running
from benchmarks.peers import BARE, OURS, Peer, Place, Setting
from benchmarks.real_jobs.work import burn
from benchmarks.servers import Server, redis_server, server_url
from benchmarks.session import Figures
from benchmarks.workers import url_for_node

CPU_SECONDS = 0.02
HOME = CHECKOUT / ".peers"
REQUIREMENTS = CHECKOUT / "benchmarks" / "real_jobs" / "requirements.txt"


@dataclass(frozen=True, slots=True)
class RealStage:
    """The queues that can be measured here, each prepared in its place."""

    peers: list[Peer]
    places: dict[str, Place]
    server: Server

    def drain(self, peer: Peer, work: str, setting: Setting, count: int) -> Figures:
        place = self.places[peer.key]
        _empty(peer, place)
        peer.load(place, work, count)
        place.database.execute("vacuum analyze")
        place.database.execute("checkpoint")
        place = replace(place, variables=place.variables | {"COUNT": str(count)})
        with ExitStack() as stack:
            open_gate = stack.enter_context(place.database.gate(peer.table)) if peer.table else None
            return drain(
                peer.commands(place, work, setting),
                total=count,
                left=peer.left(place),
                server=self.server,
                time_limit=20,
                report_every=1,
                open_gate=open_gate,
            )


def _empty(peer: Peer, place: Place) -> None:
    """Remove what an earlier measurement left when its time was over."""
    if peer.redis and place.redis is not None:
        place.redis.ask("FLUSHALL")
    if peer.table:
        place.database.execute(f"truncate {peer.table} cascade")


@contextmanager
def real_stage(others: Sequence[Peer]) -> Iterator[RealStage]:
    """Start the servers and prepare the queues; leave out, with a message, those that cannot be installed here."""
    with ExitStack() as stack:
        python = _python()
        redis = stack.enter_context(redis_server())
        peers = list(others) if python else []
        if redis is None and any(peer.redis for peer in peers):
            print("redis-server is not installed, so Celery and dramatiq are not measured (make prerequisites).")
            peers = [peer for peer in peers if not peer.redis]
        service = stack.enter_context(running(Command([sys.executable, "-m", "benchmarks.real_jobs.http_server"])))
        assert service.stdout is not None
        port = int(service.stdout.readline())
        variables = {"SERVICE_URL": f"http://127.0.0.1:{port}/", "ITERATIONS": str(_iterations())}
        if redis is not None:
            variables["REDIS_URL"] = redis.url
        places = {}
        for peer in (BARE, OURS, *peers):
            database = stack.enter_context(scratch_database(suffix=f"_{peer.key}"))
            place = Place(database, redis, python or sys.executable, variables | _variables(peer, database))
            places[peer.key] = place
            peer.prepare(place)
        server = Server(server_url())
        stack.callback(server.close)
        yield RealStage(peers, places, server)


def _python() -> str | None:
    """Return the Python of the environment, which is installed if its requirements have changed.

    Return None if pip cannot install it, because there is no network for example.
    """
    program, stamp = HOME / "bin" / "python", HOME / ".installed"
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return str(program)
    print(f"Installing the other queues into {HOME.name} ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(HOME)], check=True)
    install = [str(program), "-m", "pip", "install", "--quiet", "--requirement", str(REQUIREMENTS)]
    finished = subprocess.run(install, capture_output=True, text=True)
    if finished.returncode:
        print(f"pip cannot install them, so only this package is measured: {finished.stderr.strip()[-300:]}")
        return None
    stamp.write_text(wanted, encoding="utf-8")
    return str(program)


def _variables(peer: Peer, database: Database) -> dict[str, str]:
    return {
        "PEER": peer.key,
        "DATABASE_URL": database.url,
        "ASYNCPG_URL": url_for_node(database.url),
        "DJANGO_SETTINGS_MODULE": "benchmarks.real_jobs.settings",
        "PYTHONPATH": str(CHECKOUT),
    }


def _iterations() -> int:
    """Return how many iterations take 20 ms of CPU time on this machine: the same number for every queue."""
    tried = 20_000
    best = min(_cpu_seconds(tried) for _ in range(5))
    return int(tried * CPU_SECONDS / best)


def _cpu_seconds(iterations: int) -> float:
    began = time.thread_time()
    burn(iterations)
    return time.thread_time() - began
