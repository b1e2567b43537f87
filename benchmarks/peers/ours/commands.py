"""How the worker of this package is started: ``manage.py runworker``, as a user types it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from benchmarks.commands import CHECKOUT, Command

PROJECT = Path(__file__).with_name("project")
SILENT = "--no-log-success"


def runworker(url: str, *options: str, second: str = "", python: str = sys.executable, **variables: str) -> Command:
    """Return the command on the database of a URL; the URL ``second`` is the database with the alias "second"."""
    environment = _address(url) | variables | {"DJANGO_SETTINGS_MODULE": "settings"}
    if second:
        environment["SECOND_DATABASE"] = str(conninfo_to_dict(second)["dbname"])
    if python != sys.executable:
        environment["PYTHONPATH"] = os.pathsep.join([str(CHECKOUT), sysconfig.get_path("platlib")])
    return Command([python, "manage.py", "runworker", *options], environment, PROJECT)


def _address(url: str) -> dict[str, str]:
    parts = {f"PG{name.upper()}": str(value) for name, value in conninfo_to_dict(url).items()}
    return parts | {"PGDATABASE": parts["PGDBNAME"]}


@cache
def systems_python() -> str | None:
    """Return the Python of the system, if it is another one and can load the packages of the current environment."""
    found = shutil.which("python3", path=os.defpath)
    if found is None or os.path.realpath(found) == os.path.realpath(sys.executable):
        return None
    asked = subprocess.run(
        [found, "-c", "import sys; print(sys.implementation.cache_tag)"], capture_output=True, text=True
    )
    return found if asked.stdout.strip() == sys.implementation.cache_tag else None
