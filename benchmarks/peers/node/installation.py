"""graphile-worker from npm, installed once into an ignored folder of the checkout."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

HOME = Path(__file__).resolve().parents[3] / ".node"
PACKAGES = ("node@24", "graphile-worker@0.18.0")
WORKER = Path(__file__).with_name("worker.mjs")
# The directory in which its command finds its tasks.
PROJECT = Path(__file__).with_name("project")


def executable() -> Path | None:
    """Return the path of a Node that runs graphile-worker 0.18, or None if npm is missing."""
    node = HOME / "node_modules" / ".bin" / "node"
    package = HOME / "node_modules" / "graphile-worker"
    if node.exists() and package.exists():
        return node
    if shutil.which("npm") is None:
        return None
    HOME.mkdir(exist_ok=True)
    subprocess.run(
        ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(HOME), *PACKAGES],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return node if node.exists() else None


def script() -> Path:
    """Copy the script of the worker next to the packages that it imports, and return its path."""
    copy = HOME / WORKER.name
    copy.write_text(WORKER.read_text())
    return copy


def command_line() -> list[str]:
    """Return the command line of graphile-worker, as a user types it."""
    return [str(executable()), str(HOME / "node_modules" / "graphile-worker" / "dist" / "cli.js")]
