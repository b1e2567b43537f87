"""The machine that measures: its processors, versions and load, and what other programs take of it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sysconfig
import time
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import Any

import psutil

from benchmarks.servers import Server

# Above this load average, or above this number of cores for other programs, figures are not final.
MAX_LOAD = 0.5
MAX_FOREIGN_CORES = 0.15
PACKAGES = ("Django", "psycopg", "django-graphile-worker")


def description() -> dict[str, object]:
    """Return what a reader must know to compare figures with those of another machine."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release().split('-')[0]} {platform.machine()}",
        "python": platform.python_version(),
        "python_is_optimized": is_optimized(),
        **{name: metadata.version(name) for name in PACKAGES},
    }


def is_optimized() -> bool:
    """Return whether the interpreter was built with profile-guided optimization, as those of distributions are."""
    return "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")


def processor() -> str:
    """Return the model of the processor: the kernel has part numbers for some processors, lscpu knows their names."""
    command = ["lscpu", "--json"]
    lines = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)["lscpu"]
    return str(next((line["data"] for line in _with_children(lines) if line["field"] == "Model name:"), "unknown"))


def _with_children(lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for line in lines:
        yield line
        yield from _with_children(line.get("children", []))


def load_average() -> float:
    return os.getloadavg()[0]


class LoadMeter:
    """The cores that programs other than the benchmark and its server keep busy, from its start to ``foreign_cores()``.

    All child processes must have ended by then, because the kernel adds their time to that of this process only then.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self.before = load_average()
        self._began = time.monotonic()
        self._start = self._foreign_seconds()

    def foreign_cores(self) -> float:
        return max(0.0, (self._foreign_seconds() - self._start) / (time.monotonic() - self._began))

    def _foreign_seconds(self) -> float:
        machine, own = psutil.cpu_times(), psutil.Process().cpu_times()
        busy = machine.user + machine.nice + machine.system + machine.irq + machine.softirq
        ours = own.user + own.system + own.children_user + own.children_system
        return float(busy - ours - self._server.cpu_seconds())


def reasons_against(load: float, foreign_cores: float, *, is_quick: bool, flushes: bool) -> list[str]:
    """Return why figures are preliminary; an empty list if they are final."""
    reasons = ["measured in the quick mode"] if is_quick else []
    if load > MAX_LOAD:
        reasons.append(f"the load average was {load:.2f} at the start")
    if foreign_cores > MAX_FOREIGN_CORES:
        reasons.append(f"other programs kept {foreign_cores:.2f} cores busy")
    if not flushes:
        reasons.append("the server does not flush its writes")
    return reasons


def wait_for_quiet(seconds: float) -> None:
    """Wait until the load average allows final figures, at most for some seconds."""
    deadline = time.monotonic() + seconds
    while load_average() > MAX_LOAD and time.monotonic() < deadline:
        time.sleep(1)
