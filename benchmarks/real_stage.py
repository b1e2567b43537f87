"""Where the real jobs run: a database for each queue, Redis, the HTTP service, and the environment of the peers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from benchmarks import jobs
from benchmarks.commands import CHECKOUT, Command, running
from benchmarks.database import Database, empty_database, server_url
from benchmarks.draining import Drained, drain
from benchmarks.peers import environment
from benchmarks.peers.catalogue import BARE, OURS
from benchmarks.peers.node.commands import url_for_node
from benchmarks.peers.peer import Peer, Place, Setting
from benchmarks.real_jobs.shop.work import burn
from benchmarks.redis_server import redis_server
from benchmarks.server import Server

CPU_SECONDS = 0.02
TIME_LIMIT = 20


@dataclass(frozen=True, slots=True)
class RealStage:
    """The queues that can be measured here, each prepared in its place."""

    peers: list[Peer]
    places: dict[str, Place]
    server: Server

    def drain(self, peer: Peer, work: str, setting: Setting, count: int) -> Drained:
        place = self.places[peer.key]
        _empty(peer, place)
        peer.load(place, work, count)
        place.database.execute("vacuum analyze")
        place.database.execute("checkpoint")
        place = replace(place, variables=place.variables | {"COUNT": str(count)})
        with ExitStack() as stack:
            open_gate = stack.enter_context(jobs.gate(place.database, table=peer.table)) if peer.table else None
            return drain(
                peer.commands(place, work, setting),
                total=count,
                left=peer.left(place),
                server=self.server,
                time_limit=TIME_LIMIT,
                report_every=1,
                open_gate=open_gate,
            )


def _empty(peer: Peer, place: Place) -> None:
    """Remove what an earlier measurement left when its time was over."""
    if peer.needs_redis and place.redis is not None:
        place.redis.ask("FLUSHALL")
    if peer.table:
        place.database.execute(f"truncate {peer.table} cascade")


@contextmanager
def real_stage(others: Sequence[Peer]) -> Iterator[RealStage]:
    """Start the servers and prepare the queues; leave out, with a message, those that cannot be installed here."""
    with ExitStack() as stack:
        python = environment.python()
        redis = stack.enter_context(redis_server())
        peers = list(others) if python else []
        if redis is None and any(peer.needs_redis for peer in peers):
            print("redis-server is not installed, so Celery and dramatiq are not measured (make prerequisites).")
            peers = [peer for peer in peers if not peer.needs_redis]
        port = stack.enter_context(_http_service())
        variables = {"SERVICE_URL": f"http://127.0.0.1:{port}/", "ITERATIONS": str(_iterations())}
        if redis is not None:
            variables["REDIS_URL"] = redis.url
        places = {}
        for peer in (BARE, OURS, *peers):
            database = stack.enter_context(empty_database(f"_{peer.key}"))
            place = Place(database, redis, python or sys.executable, variables | _variables(peer, database))
            places[peer.key] = place
            peer.prepare(place)
        server = Server(server_url())
        stack.callback(server.close)
        yield RealStage(peers, places, server)


def _variables(peer: Peer, database: Database) -> dict[str, str]:
    return {
        "PEER": peer.key,
        "DATABASE_URL": database.url,
        "ASYNCPG_URL": url_for_node(database.url),
        "DJANGO_SETTINGS_MODULE": "benchmarks.real_jobs.settings",
        "PYTHONPATH": str(CHECKOUT),
    }


@contextmanager
def _http_service() -> Iterator[int]:
    command = Command([sys.executable, "-m", "benchmarks.real_jobs.http_server"])
    with running(command, errors=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())


def _iterations() -> int:
    """Return how many iterations take 20 ms of CPU time on this machine: the same number for every queue."""
    tried = 20_000
    best = min(_cpu_seconds(tried) for _ in range(5))
    return int(tried * CPU_SECONDS / best)


def _cpu_seconds(iterations: int) -> float:
    began = time.thread_time()
    burn(iterations)
    return time.thread_time() - began
