"""The original, from npm: installed once into an ignored folder of the checkout."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

HOME = Path(__file__).resolve().parents[2] / ".node"
PACKAGES = ("node@24", "graphile-worker@0.18.0")
WORKER = Path(__file__).with_name("node_worker.mjs")
# Where its command finds its tasks.
PROJECT = Path(__file__).with_name("node_project")


def executable() -> Path | None:
    """A Node that runs graphile-worker 0.18, or None where npm is missing."""
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
    """The worker's script, beside the packages that it imports."""
    copy = HOME / WORKER.name
    copy.write_text(WORKER.read_text())
    return copy


def command_line() -> list[str]:
    """The original as people type it."""
    return [str(executable()), str(HOME / "node_modules" / "graphile-worker" / "dist" / "cli.js")]
