"""Run one benchmark, and add its record to a file. ``python -m benchmarks`` calls this for each benchmark."""

from __future__ import annotations

import signal
import sys
import time
from datetime import UTC, datetime
from importlib import import_module

from benchmarks import machine, results
from benchmarks.__main__ import parser
from benchmarks.database import server_url
from benchmarks.server import Server
from benchmarks.session import Session

# The load average falls below 0.5 in this time after a benchmark, if no other program runs.
QUIET_SECONDS = 180
SHOWN_SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size")


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)
    [name] = options.names
    if options.publish:
        machine.wait_for_quiet(QUIET_SECONDS)
    server = Server(server_url())
    settings = server.settings(*SHOWN_SETTINGS)
    about = machine.description() | {"PostgreSQL": server.version(), "settings": settings}
    print(f"== {name}   (load average {machine.load_average():.2f})", flush=True)
    session = Session(name, options)
    meter, began = machine.LoadMeter(server), time.monotonic()
    import_module(f"benchmarks.measures.{name}").measure(session)
    seconds, foreign = time.monotonic() - began, meter.foreign_cores()
    flushes = settings["fsync"] == settings["synchronous_commit"] == "on"
    preliminary = machine.reasons_against(meter.before, foreign, is_quick=session.is_quick, flushes=flushes)
    record = results.Measured(
        name=name,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(seconds, 1),
        options={"rounds": session.rounds, "quick": session.is_quick},
        machine=about,
        load={"before": round(meter.before, 2), "foreign_cores": round(foreign, 3)},
        preliminary=preliminary,
        tables=session.tables,
    )
    results.merge(options.json, record)
    print(f"{seconds:.0f} s, load average before {meter.before:.2f}, other programs {foreign:.2f} cores")
    for reason in preliminary:
        print(f"warning: the figures are preliminary: {reason}")
    print(flush=True)


if __name__ == "__main__":
    # Stop servers and workers also when this process is asked to stop.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    main(sys.argv[1:])
