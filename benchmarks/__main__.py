"""Run all benchmarks, or those that are named: ``python -m benchmarks [name ...]``."""

from __future__ import annotations

import argparse
import ast
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from benchmarks import CHECKOUT, machine, report, results
from benchmarks.servers import Server, server_url
from benchmarks.session import Session

MEASURES = Path(__file__).with_name("measures")
# The order of a whole run: the comparison that most readers want first.
NAMES = (
    "drain",
    "queues",
    "backlog",
    "held_snapshot",
    "latency",
    "start",
    "idle",
    "real_jobs",
    "api",
    "claims",
    "schedules",
)
LATEST = CHECKOUT / ".benchmarks" / "latest.json"
# The load average falls below 0.5 in this time after a benchmark, if no other program runs.
QUIET_SECONDS = 180
SHOWN_SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size")


def parser() -> argparse.ArgumentParser:
    names = "\n".join(f"  {name:14} {summary(name)}" for name in NAMES)
    found = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"Benchmarks:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("names", nargs="*", metavar="name", help="a benchmark (default: all)")
    found.add_argument("--rounds", type=int, help="measure each candidate this often (default: 3, quick: 1)")
    found.add_argument("--quick", action="store_true", help="few jobs, one round: does it work, and roughly how fast?")
    found.add_argument("--only", default="", help="kinds of work and queues of real_jobs, such as orm,celery")
    found.add_argument("--json", type=Path, default=LATEST, metavar="FILE", help="default: .benchmarks/latest.json")
    found.add_argument(
        "--publish",
        action="store_true",
        help="wait for a quiet machine before each benchmark, record into benchmarks/results/published.json, "
        "and write tables of the documentation from it",
    )
    return found


def summary(name: str) -> str:
    """Return the first line of a module's docstring, without importing the module."""
    tree = ast.parse((MEASURES / f"{name}.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").splitlines()[0]


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    names = options.names or NAMES
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"Unknown benchmarks: {', '.join(unknown)}. Choose from {', '.join(NAMES)}.")
        return 2
    # Several benchmarks share the server that is started here.
    server_url()
    if len(names) == 1:
        measure(names[0], options)
        return 0
    others = [argument for argument in arguments if argument not in NAMES]
    for name in names:
        # Each has a process of its own, because one of them sets up Django.
        code = _call([sys.executable, "-m", "benchmarks", name, *others])
        if code:
            return code
    return 0


def _call(command: list[str]) -> int:
    """Run a command to its end, and end it if this process is asked to stop."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait()
        finally:
            process.terminate()


def measure(name: str, options: argparse.Namespace) -> None:
    """Run one benchmark, and add its record to a file."""
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
        rounds=session.rounds,
        machine=about,
        load={"before": round(meter.before, 2), "foreign_cores": round(foreign, 3)},
        preliminary=preliminary,
        tables=session.tables,
    )
    target = results.PUBLISHED if options.publish else options.json
    results.merge(target, record)
    print(f"{seconds:.0f} s, load average before {meter.before:.2f}, other programs {foreign:.2f} cores")
    for reason in preliminary:
        print(f"warning: the figures are preliminary: {reason}")
    print(f"All figures are in {target}.\n", flush=True)
    if options.publish:
        report.main([])


if __name__ == "__main__":
    # Stop servers and workers also when this process is asked to stop.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main(sys.argv[1:]))
