"""The real graphile-worker from npm: installed once into .node of the checkout, and run as a process."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

VERSION = "0.18.0"
# The version that graphile-worker needs. If that of the system is older, npm installs a newer Node.js.
NEEDED_NODE = (22, 18)
HOME = Path(__file__).parents[2] / ".node"
SCRIPTS = Path(__file__).parent
# Less than the timeout of a test: if npm hangs, the tests are skipped with that reason.
SECONDS_TO_INSTALL = 90
SECONDS_TO_REMEMBER_A_FAILURE = 900


class NodeMissingError(Exception):
    """Node.js, npm or the package is not available on this machine."""


@dataclass(frozen=True)
class Node:
    """A Node.js that can run graphile-worker."""

    executable: str

    def start(self, script: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a script of this folder in the directory in which npm has installed the modules."""
        text = (SCRIPTS / script).read_text(encoding="utf-8")
        command = [self.executable, "--input-type=module", "--eval", text, "--", *arguments]
        environment = {**os.environ, "NO_COLOR": "1", "NO_LOG_SUCCESS": "1"}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=HOME, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def run(self, script: str, *arguments: str) -> list[object]:
        """Run a script to its end, and return the JSON lines that it printed."""
        process = self.start(script, *arguments)
        output, errors = process.communicate(timeout=150)
        if process.returncode:
            raise AssertionError(f"Expected {script} to succeed, got {process.returncode}: {errors}{output}")
        return [json.loads(line) for line in output.splitlines() if line.startswith(("{", "["))]


@cache
def node() -> Node:
    """Return a Node.js with graphile-worker beside it; raise NodeMissingError with the reason otherwise."""
    if shutil.which("npm") is None:
        raise NodeMissingError("npm is not installed")
    HOME.mkdir(exist_ok=True)
    # One test process installs, and the other processes wait.
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_installed():
            _install_or_remember()
    return Node(_executable())


def _install_or_remember() -> None:
    """Install once, and store a failure so that no other test or process tries again."""
    failure = HOME / "failure"
    if failure.exists() and time.time() - failure.stat().st_mtime < SECONDS_TO_REMEMBER_A_FAILURE:
        raise NodeMissingError(failure.read_text(encoding="utf-8"))
    try:
        _install()
    except NodeMissingError as error:
        failure.write_text(str(error), encoding="utf-8")
        raise
    failure.unlink(missing_ok=True)


def _is_installed() -> bool:
    package = HOME / "node_modules" / "graphile-worker" / "package.json"
    return package.exists() and json.loads(package.read_text(encoding="utf-8"))["version"] == VERSION


def _install() -> None:
    packages = [f"graphile-worker@{VERSION}"]
    if _version("node") < NEEDED_NODE:
        packages.append("node@24")
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-save", "--prefix", str(HOME), *packages]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS_TO_INSTALL)
    except subprocess.CalledProcessError as error:
        raise NodeMissingError(f"npm could not install graphile-worker: {error.stderr!s}") from error
    except subprocess.TimeoutExpired as error:
        raise NodeMissingError(f"npm did not install graphile-worker in {SECONDS_TO_INSTALL} seconds") from error


def _executable() -> str:
    brought = HOME / "node_modules" / ".bin" / "node"
    executable = str(brought) if brought.exists() else "node"
    if _version(executable) < NEEDED_NODE:
        raise NodeMissingError(f"Node.js {'.'.join(map(str, NEEDED_NODE))} or newer is needed")
    return executable


def _version(executable: str) -> tuple[int, ...]:
    if shutil.which(executable) is None:
        return (0,)
    shown = subprocess.run([executable, "--version"], check=True, capture_output=True, text=True).stdout
    return tuple(int(part) for part in shown.strip().lstrip("v").split("."))
