"""Tasks as people write them, beside a bare loop of the same work and beside other queues at their best settings.

The kinds of work: two ORM queries and an update; an HTTP call that takes 20 ms, sync and async, 200 at once; 20 ms of
computing. This package runs as a user starts it, with its log in a file, statistics, and one receiver of a signal.
``--only`` chooses kinds of work (orm, http, http_async, cpu) and queues (ours, procrastinate, celery ...).
"""

from __future__ import annotations

from benchmarks.draining import RATE
from benchmarks.peers import BARE, CPU, HTTP, HTTP_ASYNC, ORM, OTHERS, OURS, Peer, Setting
from benchmarks.real_stage import RealStage, real_stage
from benchmarks.results import options_text
from benchmarks.session import Candidate, Metric, Session

TITLES = {
    ORM: "Two ORM queries and an update",
    HTTP: "An HTTP call of 20 ms, sync, 200 at once",
    HTTP_ASYNC: "An HTTP call of 20 ms, async, 200 at once",
    CPU: "20 ms of computing in Python, two processes",
}
# Four seconds or more: what a worker does once, after its first job, must not count.
COUNTS = {ORM: (6000, 400), HTTP: (8000, 400), HTTP_ASYNC: (14_000, 400), CPU: (600, 40)}
OVERHEAD = Metric("overhead", "% more time than a bare loop", 1)


def measure(session: Session) -> None:
    only = {part for part in session.options.only.split(",") if part}
    works = [work for work in TITLES if work in only] or list(TITLES)
    keys = only - set(TITLES)
    with real_stage([peer for peer in OTHERS if not keys or peer.key in keys]) as place:
        for work in works:
            _measure_work(session, place, work, session.amount(*COUNTS[work]))


def _measure_work(session: Session, place: RealStage, work: str, count: int) -> None:
    best = _search(session, place, work, count)
    # The bare loop has the same processes and threads as this package.
    settings = {BARE.label: best[OURS.label], **best}
    measured = [peer for peer in (BARE, OURS, *place.peers) if peer.label in settings]
    samples = session.interleave(
        work, {peer.label: _candidate(place, peer, work, settings[peer.label], count) for peer in measured}
    )
    # Each round is compared with that of the bare loop.
    bare = samples[BARE.label].of["rate"]
    for each in samples.values():
        pairs = zip(bare, each.of["rate"], strict=True)
        each.of["overhead"] = [(base / rate - 1) * 100 for base, rate in pairs]
    title = f"{TITLES[work]}: {count:,} jobs"
    session.add(work, title, [RATE, OVERHEAD], samples, baseline=OURS.label, settings=settings)


def _search(session: Session, place: RealStage, work: str, count: int) -> dict[str, Setting]:
    """Return the best settings of each queue; a queue that fails is left out, with its message."""
    best: dict[str, Setting] = {}
    for peer in (OURS, *place.peers):
        # The quick mode tries the first settings only.
        grid = peer.grid[work][: 1 if session.is_quick else None]
        cells = {options_text(setting): setting for setting in grid}
        candidates = {label: _candidate(place, peer, work, setting, count) for label, setting in cells.items()}
        title = f"{TITLES[work]}: {peer.label}, all settings that were tried"
        try:
            best[peer.label] = cells[session.search(f"grid_{work}_{peer.key}", title, RATE, candidates)]
        except RuntimeError as error:
            print(f"{peer.label} is not measured: {error}", flush=True)
            if peer is OURS:
                raise
    return best


def _candidate(place: RealStage, peer: Peer, work: str, setting: Setting, count: int) -> Candidate:
    return lambda: place.drain(peer, work, setting, count)
