"""Run all benchmarks, or those that are named: ``python -m benchmarks [name ...]``."""

from __future__ import annotations

import argparse
import ast
import signal
import subprocess
import sys
from pathlib import Path

from benchmarks import results
from benchmarks.database import server_url

MEASURES = Path(__file__).with_name("measures")
# The order of a whole run: the comparison that most readers want first.
NAMES = (
    "drain",
    "queues",
    "backlog",
    "limits",
    "held_snapshot",
    "recording",
    "latency",
    "start",
    "idle",
    "counting",
    "real_jobs",
    "capacity",
    "add_job",
    "api",
    "claims",
    "crontab",
    "schedules",
    "testing",
    "admin",
    "history",
)
GROUPS = {"worker": ("drain", "queues", "backlog", "latency", "start", "idle", "counting")}
LATEST = Path(__file__).resolve().parent.parent / ".benchmarks" / "latest.json"


def parser() -> argparse.ArgumentParser:
    names = "\n".join(f"  {name:12} {summary(name)}" for name in NAMES)
    groups = "\n".join(f"  {name:12} {', '.join(members)}" for name, members in GROUPS.items())
    found = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"Benchmarks:\n{names}\n\nGroups:\n{groups}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("names", nargs="*", metavar="name", help="a benchmark or a group (default: all)")
    found.add_argument("--rounds", type=int, help="measure each candidate this often (default: 3, quick: 1)")
    found.add_argument("--quick", action="store_true", help="few jobs, one round: does it work, and roughly how fast?")
    found.add_argument(
        "--only", default="", help="parts of a group, or of the benchmarks admin, real_jobs and capacity"
    )
    found.add_argument("--jobs", type=int, help="the number of jobs of drain and counting, and of rows of admin")
    found.add_argument("--rows", type=int, help="the number of rows of claims, and of attempts a day of history")
    found.add_argument("--backlog-days", type=int, help="the days of missed minutes of crontab")
    found.add_argument("--keep", metavar="NAME", help="admin and history: keep the database, and use it again")
    found.add_argument(
        "--json", type=Path, default=LATEST, metavar="FILE", help=f"default: {LATEST.name} in .benchmarks"
    )
    found.add_argument(
        "--publish",
        action="store_true",
        help="wait for a quiet machine before each benchmark, record into benchmarks/results/published.json, "
        "and write tables and plots of the documentation from it",
    )
    return found


def summary(name: str) -> str:
    """Return the first line of a module's docstring, without importing the module."""
    tree = ast.parse((MEASURES / f"{name}.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").splitlines()[0]


def chosen(options: argparse.Namespace) -> list[str]:
    """Return the benchmarks that the command line names. ``--only`` chooses among the members of a group."""
    only = {part for part in options.only.split(",") if part}
    found: list[str] = []
    for name in options.names or NAMES:
        members = GROUPS.get(name, (name,))
        found += [member for member in members if name not in GROUPS or not only or member in only]
    return found


def main(arguments: list[str]) -> int:
    found = parser()
    options = found.parse_args(arguments)
    names = chosen(options)
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"Expected some of {', '.join((*NAMES, *GROUPS))}, got {', '.join(unknown)}.")
        return 2
    # The benchmarks share the server that the first of them would start.
    server_url()
    target = results.PUBLISHED if options.publish else options.json
    for name in names:
        # Each has a process of its own, because some of them set up Django, with different settings.
        command = [sys.executable, "-m", "benchmarks.measures", name, *_passed_on(options), f"--json={target}"]
        code = _call(command)
        if code:
            return code
    print(f"All samples are in {target}.")
    return subprocess.call([sys.executable, "-m", "benchmarks.report"]) if options.publish else 0


def _call(command: list[str]) -> int:
    """Run a command to its end, and end it if this process is asked to stop."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait()
        finally:
            process.terminate()


def _passed_on(options: argparse.Namespace) -> list[str]:
    flags = [f"--{name}" for name in ("quick", "publish") if getattr(options, name)]
    is_group = any(name in GROUPS for name in options.names)
    values = {
        "rounds": options.rounds,
        "only": "" if is_group else options.only,
        "jobs": options.jobs,
        "rows": options.rows,
        "backlog-days": options.backlog_days,
        "keep": options.keep,
    }
    return flags + [f"--{name}={value}" for name, value in values.items() if value]


if __name__ == "__main__":
    # Stop servers and workers also when this process is asked to stop.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main(sys.argv[1:]))
