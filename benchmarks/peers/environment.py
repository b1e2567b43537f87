"""The Python environment of the other queues: a folder of the checkout that git ignores, never the project's own.

``requirements.txt`` pins everything in it. This package is imported from the checkout, so that it runs with the same
versions of Python, Django and psycopg as the others.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.commands import CHECKOUT

HOME = CHECKOUT / ".peers"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def python() -> str | None:
    """Return the Python of the environment, which is installed if its requirements have changed.

    Return None if pip cannot install it, because there is no network for example.
    """
    program, stamp = HOME / "bin" / "python", HOME / ".installed"
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return str(program)
    print(f"Installing the other queues into {HOME.name} ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(HOME)], check=True)
    install = [str(program), "-m", "pip", "install", "--quiet", "--requirement", str(REQUIREMENTS)]
    finished = subprocess.run(install, capture_output=True, text=True)
    if finished.returncode:
        print(f"pip cannot install them, so only this package is measured: {finished.stderr.strip()[-300:]}")
        return None
    stamp.write_text(wanted, encoding="utf-8")
    return str(program)
