"""Jobs of named queues, which run one at a time and in order, beside graphile-worker."""

from __future__ import annotations

from benchmarks.database import QUEUES, Database
from benchmarks.draining import RATE, Command, drain
from benchmarks.session import Candidate, Session
from benchmarks.workers import NODE_DEFAULTS, SILENT, Stage, node_grid, stage

JOBS = 5000
# graphile-worker runs few jobs of a queue in a second, and which of its settings is best does not change that.
TUNED = "10 at once, local queue 2,000, batch delay 0 ms"


def measure(session: Session) -> None:
    with stage() as place:
        for queues in (1, 500):
            samples = session.interleave(f"{queues} queue(s)", _candidates(place, queues, session.amount(15, 5)))
            title = f"{JOBS:,} jobs of {queues} named queue(s), one process"
            session.add(f"queues_{queues}", title, [RATE], samples, baseline="ours, silent")


def _candidates(place: Stage, queues: int, time_limit: float) -> dict[str, Candidate]:
    def candidate(database: Database, command: Command) -> Candidate:
        def drained() -> dict[str, float]:
            database.empty()
            database.make_queues(queues)
            database.load(JOBS, queue=f"(select min(id) from {QUEUES}) + n % {queues}")
            left = database.left()
            return drain([command], total=JOBS, left=left, server=place.server, time_limit=time_limit, report_every=100)

        return drained

    found = {"ours, silent": candidate(place.ours, place.our_worker(SILENT))}
    if place.theirs is not None:
        found["node, tuned"] = candidate(place.theirs, place.node_worker(node_grid()[TUNED]))
        found["node, defaults"] = candidate(place.theirs, place.node_worker(NODE_DEFAULTS))
    return found
